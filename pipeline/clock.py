"""The only module that asks the time.

Ages are differences of wall time (upstream dates its tickets), and a wall clock can be set while we run:
a step of an hour would make every ticket look dead or unborn. So `now()` is *steady*: anchored once to
the wall clock and carried on by the monotonic clock, which nobody can set; the time a machine was
suspended is added from CLOCK_BOOTTIME, which is asked seldom because it costs a system call. `step()` says
how far the system's wall clock has since been moved away from ours; whoever has evidence that the new time
is the right one calls `adopt()`. Moments that were written down before are then off by that much: who keeps
some hears of it (`on_adopt`) and moves them along, so that nobody grows an hour older in a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

#: The two clocks are read one after the other; less than this is reading, not sleeping.
SUSPENDED_MIN = 0.5


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

    def on_adopt(self, listener: Callable[[float], None]) -> None:
        """Calls `listener(seconds)` at once whenever `now()` has jumped by so much."""
        ...

    async def sleep(self, seconds: float) -> None: ...


def _suspended() -> float:
    """Seconds that the machine has slept since it was started."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()


class SystemClock:
    def __init__(self) -> None:
        self._slept = _suspended()
        self._anchor = time.time() - time.monotonic()
        self._listeners: list[Callable[[float], None]] = []

    def now(self) -> float:
        return self._anchor + time.monotonic()

    monotonic = staticmethod(time.monotonic)  # asked ten times a ticket

    def step(self) -> float:
        slept = _suspended()
        if slept - self._slept > SUSPENDED_MIN:
            self._anchor += slept - self._slept
            self._slept = slept
        return time.time() - self.now()

    def adopt(self) -> None:
        step = self.step()
        self._slept = _suspended()
        self._anchor += step
        for listener in self._listeners:
            listener(step)

    def on_adopt(self, listener: Callable[[float], None]) -> None:
        self._listeners.append(listener)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
