"""The only module that asks the time.

Ages are differences of wall time (upstream dates its tickets), and a wall clock can be set while we run:
a step of an hour would make every ticket look dead or unborn. So `now()` is *steady*: anchored once to
the wall clock and carried on by a clock that nobody can set (CLOCK_BOOTTIME, which also counts the time a
machine was suspended). `step()` says how far the system's wall clock has since been moved away from ours;
whoever has evidence that the new time is the right one calls `adopt()`.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Steady wall time, seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """For durations only."""
        ...

    def step(self) -> float:
        """System wall clock minus `now()`: non-zero after someone set the clock."""
        ...

    def adopt(self) -> None:
        """Take the system's wall clock as the truth from here on."""
        ...

    async def sleep(self, seconds: float) -> None: ...


def _boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemClock:
    def __init__(self) -> None:
        self._steady = _boottime if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
        self.adopt()

    def now(self) -> float:
        return self._anchor + self._steady()

    def monotonic(self) -> float:
        return time.monotonic()

    def step(self) -> float:
        return time.time() - self.now()

    def adopt(self) -> None:
        self._anchor = time.time() - self._steady()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
