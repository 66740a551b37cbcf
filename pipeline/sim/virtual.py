"""Virtual time: a loop whose clock jumps to the next timer whenever everybody is asleep.

An hour's outage is then a test of a second. Work handed to the loop's executor is real work: while it runs,
time stands still, so a slow disk does not make virtual deadlines pass. Threads the loop has not been told
of, and sockets to other processes, have no such protection: do not mix them with virtual time.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START = 1_760_000_000.0
#: Real seconds a loop without any timer waits for some thread to wake it before it calls that a deadlock.
GRACE = 0.5
#: Real seconds of one look at the executor's work.
LOOK = 0.05


class _JumpingSelector(selectors.DefaultSelector):
    """Never waits for a timer: moves the clock to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.real_work = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.real_work:
            return super().select(LOOK)
        if timeout is None:
            return self._last_chance()
        self.now += timeout
        return ready

    def _last_chance(self) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(GRACE)
        if not ready:
            raise RuntimeError(
                "deadlock: every task is asleep and no timer is set, so nothing can ever happen"
            )
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._jumping.real_work += 1
        future.add_done_callback(self._work_done)
        return future

    def _work_done(self, _: asyncio.Future[Any]) -> None:
        self._jumping.real_work -= 1


class VirtualClock:
    """A `pipeline.clock.Clock` on a loop's time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: float = START) -> None:
        self._loop = loop
        self._start = start
        self._step = 0.0
        self._listeners: list[Callable[[float], None]] = []

    def now(self) -> float:
        return self._start + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()

    def step(self) -> float:
        return self._step

    def adopt(self) -> None:
        step, self._step = self._step, 0.0
        self._start += step
        for listener in self._listeners:
            listener(step)

    def on_adopt(self, listener: Callable[[float], None]) -> None:
        self._listeners.append(listener)

    def set_wall_step(self, seconds: float) -> None:
        """Somebody sets the machine's wall clock: `step()` says so, `now()` stays steady until `adopt()`."""
        self._step = seconds

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_virtual(main: Callable[[VirtualClock], Coroutine[Any, Any, T]], start: float = START) -> T:
    """Run `main(clock)` to its end in a fresh virtual loop; what it leaves running is cancelled."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main(VirtualClock(runner.get_loop(), start)))
