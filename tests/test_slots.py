"""A stage's workers, in virtual time."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pipeline.config import LaneConfig
from pipeline.control.gate import Hold, Reason
from pipeline.control.stage import StageControl
from pipeline.sim.virtual import VirtualClock, run_virtual
from pipeline.slots import CRASH_PAUSE, SlotPool, Turnstile

MANUAL = Hold(Reason.MANUAL, 0.0, "test", "", "")


class Bench:
    """Jobs in a line, workers that take a second for each, and notes of what happened when."""

    def __init__(self, clock: VirtualClock, size: int, slots: int | None = None, spread: float = 0.0) -> None:
        self.clock = clock
        config = LaneConfig(source="sim", provider="sim", sink="sim")
        self.control = StageControl("query", size if slots is None else slots, config, clock.monotonic())
        self.jobs: deque[str] = deque()
        self.began: list[tuple[float, str]] = []
        self.crashes: list[tuple[str | None, str]] = []
        self.asked = 0
        self.takes, self.rest = 1.0, 0.0
        self.error: BaseException | None = None
        self.pool = SlotPool[str](
            self.control, size, clock, self.next_job, self.work, self.crashed, spread=spread
        )

    def put(self, *jobs: str) -> None:
        self.jobs.extend(jobs)
        self.pool.wake(len(jobs))

    def next_job(self) -> str | None:
        self.asked += 1
        if not self.control.gate.is_open or not self.jobs:
            return None
        return self.jobs.popleft()

    async def work(self, job: str) -> float:
        self.began.append((self.clock.monotonic(), job))
        await self.clock.sleep(self.takes)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return self.rest

    def crashed(self, job: str | None, error: Exception) -> None:
        self.crashes.append((job, type(error).__name__))


def bench(
    size: int, **options: Any
) -> Callable[[Callable[[Bench, VirtualClock], Coroutine[Any, Any, None]]], None]:
    def run(test: Callable[[Bench, VirtualClock], Coroutine[Any, Any, None]]) -> None:
        async def main(clock: VirtualClock) -> None:
            made = Bench(clock, size, **options)
            made.pool.start()
            try:
                await test(made, clock)
            finally:
                await made.pool.close()

        run_virtual(main)

    return run


# -- the turnstile ---------------------------------------------------------------------------------


def test_a_turnstile_lets_as_many_through_as_it_is_told_the_longest_waiting_first():
    async def main(clock: VirtualClock) -> list[int]:
        turnstile, through = Turnstile(), []

        async def waiter(number: int) -> None:
            await turnstile.wait()
            through.append(number)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(waiter(n)) for n in range(5)]
            await clock.sleep(1)
            turnstile.notify(2)
            await clock.sleep(1)
            assert through == [0, 1]
            tasks[2].cancel()
            await clock.sleep(1)
            turnstile.notify()
            await clock.sleep(1)
            assert through == [0, 1, 3], "a waiter that went away must not swallow the wake-up"
            turnstile.notify(9)
        return through

    assert run_virtual(main) == [0, 1, 3, 4]


def test_a_word_to_an_empty_turnstile_is_not_kept():
    async def main(clock: VirtualClock) -> bool:
        turnstile = Turnstile()
        turnstile.notify(5)
        task = asyncio.create_task(turnstile.wait())
        await clock.sleep(1)
        waits = not task.done()
        task.cancel()
        return waits

    assert run_virtual(main)


def test_who_was_let_through_is_coming_until_on_its_feet_also_if_it_is_ended_on_the_way():
    async def main(clock: VirtualClock) -> None:
        turnstile = Turnstile()
        tasks = [asyncio.create_task(turnstile.wait()) for _ in range(3)]
        await clock.sleep(1)
        turnstile.notify(2)
        assert turnstile.coming == 2
        tasks[0].cancel()
        tasks[2].cancel()
        await clock.sleep(1)
        assert turnstile.coming == 0, "one that was never let through was never coming"

    run_virtual(main)


# -- slots -----------------------------------------------------------------------------------------


def test_one_slow_job_does_not_make_nine_finished_ones_wait():
    @bench(2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(0.5)
        made.takes = 100.0
        made.put("slow")
        await clock.sleep(0.5)
        made.takes = 1.0
        made.put("a", "b", "c")
        await clock.sleep(10)
        assert made.began == [(0.5, "slow"), (1.0, "a"), (2.0, "b"), (3.0, "c")]


def test_idle_slots_ask_nothing():
    @bench(50)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        asked = made.asked
        await clock.sleep(3600)
        assert made.asked == asked == 50


def test_a_job_that_arrives_is_begun_at_once():
    @bench(3)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(10)
        made.put("a", "b")
        await clock.sleep(0)
        await clock.sleep(0)
        assert made.pool.working == 2
        assert [at for at, _ in made.began] == [10.0, 10.0]


def test_a_release_wakes_all_and_a_release_and_a_hold_in_one_breath_let_nobody_through():
    @bench(5)
    async def _(made: Bench, clock: VirtualClock) -> None:
        gate = made.control.gate
        gate.hold(MANUAL)
        made.put(*"abcde")
        await clock.sleep(1)
        gate.release(Reason.MANUAL)
        gate.hold(MANUAL)
        await clock.sleep(1)
        assert made.began == []
        gate.release(Reason.MANUAL)
        await clock.sleep(1)
        assert [job for _, job in made.began] == list("abcde")


def test_more_slots_wake_the_waiting():
    @bench(5, slots=0)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        before = made.asked
        made.control.gate.set_slots(5)
        await clock.sleep(1)
        assert made.asked == before + 5


def test_one_slot_more_wakes_one():
    @bench(50, slots=3)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        for _ in range(3):
            made.control.begin(clock.monotonic())
        before = made.asked
        made.control.gate.set_slots(4)
        await clock.sleep(1)
        assert made.asked == before + 1


def test_with_all_slots_at_work_nobody_is_woken_and_who_finishes_asks_for_more():
    @bench(5, slots=2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        calls = [made.control.begin(clock.monotonic()) for _ in range(2)]
        before = made.asked
        made.put("a", "b", "c")
        await clock.sleep(1)
        assert made.asked == before
        made.control.end(calls.pop(), clock.monotonic(), ok=True)
        made.pool.wake()
        await clock.sleep(10)
        # one slot was woken: it asks after each of its three jobs
        assert [at for at, _ in made.began] == [2.0, 3.0, 4.0]
        assert made.asked == before + 4


def test_a_wake_for_more_jobs_than_there_are_slots_wakes_each_once():
    @bench(3)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        made.put(*"abcdefg")
        await clock.sleep(10)
        assert [at for at, _ in made.began] == [1.0] * 3 + [2.0] * 3 + [3.0]


def test_nobody_is_woken_for_a_job_that_a_slot_on_its_way_will_find():
    @bench(10, slots=2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        made.asked = 0
        for number in range(6):
            made.put(f"job {number}")
        assert made.pool.coming == 2
        await clock.sleep(0.5)
        assert (made.asked, made.pool.coming) == (2, 0)
        await clock.sleep(10)
        assert [job for _, job in made.began] == [f"job {number}" for number in range(6)]


def test_calls_from_before_the_breaker_opened_do_not_keep_the_others_asleep():
    @bench(2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        for _ in range(2):
            made.control.begin(clock.monotonic())
        made.control.breaker.trip(clock.monotonic(), "test")
        await clock.sleep(10)
        made.control.tick(clock.monotonic())
        made.put("a")
        await clock.sleep(1)
        assert [job for _, job in made.began] == ["a"]


def test_for_every_hung_call_another_slot_stands_in_and_for_none_nobody():
    @bench(4)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.pool.replace_hung()
        assert len(made.pool._tasks) == 4
        for _ in range(3):
            made.control.begin(clock.monotonic())
        made.control.breaker.trip(clock.monotonic(), "test")
        made.control.tick(clock.monotonic())
        for _ in range(5):
            made.pool.replace_hung()
        assert len(made.pool._tasks) == 4 + 3 + made.control.breaker.config.trials


def test_after_a_hold_the_slots_start_spread_out_and_not_at_once():
    @bench(100, spread=2.0)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(5)
        made.control.gate.hold(MANUAL)
        made.put(*map(str, range(100)))
        await clock.sleep(5)
        assert made.began == []
        made.control.gate.release(Reason.MANUAL)
        await clock.sleep(5)
        moments = sorted(at - 10.0 for at, _ in made.began)
        assert len(moments) == 100
        assert moments[0] >= 0
        assert moments[-1] <= 2.0
        assert sum(moment <= 0.5 for moment in moments) < 60
        assert sum(moment <= 1.0 for moment in moments) < 85


def test_at_the_start_they_are_spread_too_and_then_no_more():
    @bench(1, spread=2.0)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.put("a", "b", "c")
        await clock.sleep(20)
        first, second, third = (at for at, _ in made.began)
        assert 0 <= first <= 2
        assert (second - first, third - second) == pytest.approx((1, 1))


def test_a_slot_rests_as_long_as_its_work_says():
    @bench(1)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.rest = 7.0
        made.put("a", "b")
        await clock.sleep(20)
        assert [at for at, _ in made.began] == [0.0, 8.0]


def test_a_slot_is_engaged_while_it_works_and_while_it_rests_and_not_after():
    @bench(2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.rest = 3.0
        made.put("a")
        await clock.sleep(0.5)
        assert (made.pool.working, made.pool.engaged) == (1, 1)
        await clock.sleep(1.0)
        assert (made.pool.working, made.pool.engaged) == (0, 1)
        await clock.sleep(3.0)
        assert (made.pool.working, made.pool.engaged) == (0, 0)


# -- errands ---------------------------------------------------------------------------------------


def test_a_slot_that_goes_on_an_errand_leaves_its_place_to_another():
    @bench(2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        errands: list[tuple[str, float]] = []

        async def errand(name: str) -> None:
            errands.append((name, clock.monotonic()))
            await clock.sleep(10)

        names = iter("xy")
        made.pool.between = lambda: errand(name) if (name := next(names, None)) else None
        made.put("a")
        await clock.sleep(1.5)
        made.put("b", "c")
        await clock.sleep(3.5)
        # Both slots are away from 1 s and 2.5 s on; c waits for the first to come back.
        assert errands == [("x", 1.0), ("y", 2.5)]
        assert made.began == [(0.0, "a"), (1.5, "b")]
        assert made.pool.working == 0
        await clock.sleep(7)
        assert made.began[2:] == [(11.0, "c")]


def test_a_bug_in_looking_for_an_errand_costs_no_slot():
    @bench(1)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.pool.between = lambda: [][0]
        made.put("a", "b")
        await clock.sleep(5)
        assert made.began == [(0.0, "a"), (1.0, "b")]
        assert made.crashes == [(None, "IndexError")] * 2


# -- bugs ------------------------------------------------------------------------------------------


def test_a_bug_costs_its_job_a_second_and_no_slot():
    @bench(1)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.error = ValueError("bug")
        made.put("bad", "good")
        await clock.sleep(10)
        assert made.crashes == [("bad", "ValueError")]
        assert made.began == [(0.0, "bad"), (1.0 + CRASH_PAUSE, "good")]
        assert made.pool.working == 0


def test_a_slot_that_crashed_wakes_another_before_it_rests():
    @bench(2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        made.error = ValueError("bug")
        made.put("bad")
        await clock.sleep(0.5)
        made.jobs.append("good")  # and nobody is told
        await clock.sleep(10)
        assert made.began == [(1.0, "bad"), (2.0, "good")]


def test_a_slot_that_rests_wakes_another_before():
    @bench(2)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await clock.sleep(1)
        made.rest = 60.0
        made.put("a")
        await clock.sleep(0.5)
        made.jobs.append("b")  # and nobody is told
        await clock.sleep(10)
        assert made.began == [(1.0, "a"), (2.0, "b")]


def test_a_bug_in_choosing_is_counted_and_becomes_no_busy_loop(monkeypatch: pytest.MonkeyPatch):
    @bench(1)
    async def _(made: Bench, clock: VirtualClock) -> None:
        def broken() -> str | None:
            raise KeyError("bug")

        made.pool._next_job = broken
        await clock.sleep(10.5)
        assert len(made.crashes) == 11
        assert set(made.crashes) == {(None, "KeyError")}
        made.pool._next_job = made.next_job
        made.put("good")
        await clock.sleep(2)
        assert [job for _, job in made.began] == ["good"]


def test_a_bug_in_accounting_for_a_bug_costs_no_slot():
    @bench(1)
    async def _(made: Bench, clock: VirtualClock) -> None:
        def broken(job: str | None, error: Exception) -> None:
            raise RuntimeError("bug in the handler")

        made.pool._crashed = broken
        made.error = ValueError("bug")
        made.put("bad", "good")
        await clock.sleep(10)
        assert [job for _, job in made.began] == ["bad", "good"]


def test_a_call_that_was_cancelled_by_somebody_else_costs_no_slot():
    @bench(1)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.error = asyncio.CancelledError()
        made.put("bad", "good")
        await clock.sleep(10)
        assert [job for _, job in made.began] == ["bad", "good"]
        assert [job for job, _ in made.crashes] == ["bad"]


def test_a_bug_in_accounting_for_a_bug_in_choosing_costs_no_slot_either():
    @bench(1)
    async def _(made: Bench, clock: VirtualClock) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("bug in the handler")

        made.pool._crashed = broken
        made.pool._next_job = broken
        made.pool.wake()
        await clock.sleep(5)
        made.pool._next_job = made.next_job
        made.put("good")
        await clock.sleep(2)
        assert [job for _, job in made.began] == ["good"]


def test_a_pool_closed_while_a_crashed_slot_rests_is_closed():
    async def main(clock: VirtualClock) -> None:
        made = Bench(clock, 1)
        made.pool.start()
        made.error = asyncio.CancelledError()
        made.put("bad")
        await clock.sleep(1.5)
        await made.pool.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(main)


# -- the end ---------------------------------------------------------------------------------------


def test_drained_returns_when_the_last_job_is_done():
    @bench(3)
    async def _(made: Bench, clock: VirtualClock) -> None:
        await made.pool.drained()
        assert clock.monotonic() == 0
        made.takes = 4.0
        made.put("a")
        await clock.sleep(1)
        made.takes = 10.0
        made.put("b")
        await clock.sleep(0)
        await made.pool.drained()
        assert clock.monotonic() == 11.0
        assert made.pool.working == 0


def test_closing_cancels_what_is_under_way_and_leaves_no_task():
    async def main(clock: VirtualClock) -> None:
        made = Bench(clock, 3)
        made.pool.start()
        made.takes = 1000.0
        await clock.sleep(1)
        made.put("a", "b")
        await clock.sleep(1)
        await made.pool.close()
        assert made.pool.working == 0
        assert made.crashes == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await made.pool.close()

    run_virtual(main)


def test_starting_twice_makes_no_second_set_of_slots():
    @bench(3)
    async def _(made: Bench, clock: VirtualClock) -> None:
        made.pool.start()
        await clock.sleep(1)
        assert len(made.pool._tasks) == 3
