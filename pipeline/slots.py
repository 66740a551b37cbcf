"""A stage's workers: slots that loop, sleep in one place, and are woken when there is something to do.

A slot asks `next_job` (synchronous, so asking and taking are one step) and works on what it gets. When it
gets nothing it waits at the turnstile. Whatever could make the answer different (a ticket arrived, a gate
opened, room came free) notifies the turnstile; a slot that was woken asks again, so a release and a new
hold in one tick let nobody through.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

import structlog

from pipeline.clock import Clock
from pipeline.control.stage import StageControl

Job = TypeVar("Job")
log = structlog.get_logger()

#: A slot that failed outside its job waits this long, so that a bug cannot become a busy loop.
CRASH_PAUSE = 1.0


class Turnstile:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.coming = 0  # let through, and not yet on their feet

    async def wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future.done() and not future.cancelled():
                self.coming -= 1

    def notify(self, number: int = 1) -> None:
        while number > 0 and self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self.coming += 1
                number -= 1


class SlotPool(Generic[Job]):
    """`work` returns how long the slot rests afterwards; `crashed` accounts for the job of a bug."""

    def __init__(
        self,
        control: StageControl,
        size: int,
        clock: Clock,
        next_job: Callable[[], Job | None],
        work: Callable[[Job], Awaitable[float]],
        crashed: Callable[[Job | None, Exception], None],
        spread: float = 0.0,
    ) -> None:
        self._control = control
        self._size = size
        self._clock = clock
        self._next_job = next_job
        self._work = work
        self._crashed = crashed
        self._spread = spread
        self._turnstile = Turnstile()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._working = 0
        self.engaged = 0  # slots at work, or resting from it
        #: What a slot does between two jobs of its own, if there is something: see `CallbackStage.carry_on`.
        self.between: Callable[[], Coroutine[Any, Any, None] | None] = lambda: None
        control.gate.on_change = self._wake_free

    @property
    def working(self) -> int:
        return self._working

    def wake(self, number: int = 1) -> None:
        """There is something to do. With all slots at work none is woken: who finishes asks for more.

        Nor for those who are on their way already, and will find it: many answers come in one turn of the
        loop, and without this 1.3 slots a ticket were woken for nothing, a sixth of the engine's work.
        """
        free = self._control.gate.slots - self._control.busy - self._turnstile.coming
        if free > 0:
            self._turnstile.notify(min(number, free))

    @property
    def coming(self) -> int:
        """Slots that were woken and are about to ask."""
        return self._turnstile.coming

    def _wake_free(self) -> None:
        """The gate has opened, or lets more through: as many as may start now. To wake all 800 whenever the
        limiter lets one more through was two thirds of an overloaded lane's work."""
        self.wake(self._size)

    def start(self) -> None:
        self._fill(self._size)

    def replace_hung(self) -> None:
        """A coroutine in a hung call is no slot until it returns: another stands in for it."""
        hung = self._control.hung
        if hung:
            self._fill(self._size + hung + self._control.breaker.config.trials)

    def _fill(self, size: int) -> None:
        for number in range(len(self._tasks), size):
            self._tasks.add(asyncio.create_task(self._slot(), name=f"{self._control.name}-{number}"))

    async def drained(self) -> None:
        """Returns once no slot is at work."""
        while self._working:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _slot(self) -> None:
        epoch = -1
        while True:
            try:
                if self._spread and epoch != self._control.gate.epoch:
                    epoch = self._control.gate.epoch
                    await self._clock.sleep(random.uniform(0, self._spread))
                job = self._next_job()
                if job is None:
                    await self._turnstile.wait()
                    continue
            except Exception as error:
                self._account(None, error)
                await self._clock.sleep(CRASH_PAUSE)
                continue
            self.engaged += 1
            rest = await self.run(job)
            errand = self._errand()
            if errand is not None:
                self.wake()
                await errand
            if rest:
                self.wake()
                await self._clock.sleep(rest)
            self.engaged -= 1

    def _errand(self) -> Coroutine[Any, Any, None] | None:
        try:
            return self.between()
        except Exception as error:
            self._account(None, error)
            return None

    async def run(self, job: Job) -> float:
        """Work on a job that `next_job` gave, with whatever task; answers how long a slot should rest."""
        self._working += 1
        try:
            return await self._work(job)
        except asyncio.CancelledError:
            if _is_ended():
                raise
            self._account(job, RuntimeError("cancelled by something else"))
        except Exception as error:
            self._account(job, error)
        finally:
            self._working -= 1
            if not self._working:
                self._idle.set()
        return CRASH_PAUSE

    def _account(self, job: Job | None, error: Exception) -> None:
        """A bug in the accounting itself must not end the slot."""
        try:
            self._crashed(job, error)
        except Exception as worse:
            log.error("crash could not be accounted for", stage=self._control.name, exc_info=worse)


def _is_ended() -> bool:
    """Cancelled by our own close(), not by something inside the job."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
