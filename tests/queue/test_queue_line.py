from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from queue_makers import ticket

from pipeline.queue.line import Line
from pipeline.sim.virtual import VirtualClock, run_virtual
from pipeline.ticket import Ticket


def names(line: Line) -> list[str]:
    """Taken one by one until nothing is ready."""
    taken = []
    while (found := line.take()) is not None:
        taken.append(found.trace_id)
    return taken


def virtually(
    order: str = "fifo",
) -> Callable[[Callable[[Line, VirtualClock], Coroutine[Any, Any, None]]], None]:
    def run(test: Callable[[Line, VirtualClock], Coroutine[Any, Any, None]]) -> None:
        async def main(clock: VirtualClock) -> None:
            line = Line(clock, order)
            await test(line, clock)
            line.close()

        run_virtual(main)

    return run


def waiting() -> list[Ticket]:
    return [
        ticket(trace="a", created=30, priority=1),
        ticket(trace="b", created=10, priority=5),
        ticket(trace="c", created=20, priority=5),
        ticket(trace="d", created=10, priority=-3),
    ]


@pytest.mark.parametrize(
    ("order", "taken"),
    [("fifo", "abcd"), ("lifo", "dcba"), ("deadline", "bdca"), ("priority", "bcad"), ("unheard of", "abcd")],
)
def test_ready_tickets_come_in_their_order_and_equals_as_they_arrived(order: str, taken: str):
    @virtually(order)
    async def _(line: Line, clock: VirtualClock) -> None:
        for one in waiting():
            line.put(one)
        assert (line.pending, line.delayed, len(line)) == (4, 0, 4)
        assert "".join(names(line)) == taken
        assert line.take() is None


@pytest.mark.parametrize("order", ["fifo", "lifo", "deadline", "priority"])
def test_what_is_put_first_goes_before_all_in_the_order_it_was_put(order: str):
    @virtually(order)
    async def _(line: Line, clock: VirtualClock) -> None:
        line.put(ticket(trace="ready", created=0, priority=99))
        for trace in ("x", "y"):
            line.put_first(ticket(trace=trace, created=99))
        assert names(line) == ["x", "y", "ready"]


def test_a_delayed_ticket_comes_out_when_due_and_not_before():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        line.delay(ticket(trace="later"), 3.0)
        line.put(ticket(trace="now"))
        assert (line.pending, line.delayed, len(line)) == (1, 1, 2)
        assert names(line) == ["now"]
        await clock.sleep(2.99)
        assert names(line) == []
        await clock.sleep(0.02)
        assert (line.pending, line.delayed) == (1, 0)
        assert names(line) == ["later"]


def test_delayed_tickets_come_out_by_their_moment_and_go_ahead_of_the_ready():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        for trace, wait in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("far", 50.0), ("a2", 1.0)):
            line.delay(ticket(trace=trace), wait)
        line.put(ticket(trace="ready"))
        await clock.sleep(10)
        assert names(line) == ["a", "a2", "b", "c", "ready"]
        assert line.delayed == 1


def test_workers_are_woken_once_for_each_ready_ticket_and_not_for_a_delayed_one():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        woken: list[tuple[float, int]] = []
        line.on_ready = lambda number: woken.append((clock.monotonic(), number))
        line.put(ticket())
        line.put_first(ticket())
        for wait in (1.0, 1.0, 2.0):
            line.delay(ticket(), wait)
        assert woken == [(0.0, 1), (0.0, 1)]
        await clock.sleep(100)
        assert woken[2:] == [(1.0, 2), (2.0, 1)]


def test_one_timer_stands_however_many_wait_and_none_when_nobody_does():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        for wait in range(100, 0, -1):
            line.delay(ticket(), float(wait))
        handles = [h for h in clock._loop._scheduled if not h.cancelled()]  # type: ignore[attr-defined]
        assert len(handles) == 1
        await clock.sleep(101)
        assert line.delayed == 0
        assert line._timer is None


def test_a_ticket_delayed_by_nothing_or_less_is_ready_in_the_next_moment():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        line.delay(ticket(trace="a"), 0.0)
        line.delay(ticket(trace="b"), -5.0)
        await clock.sleep(0.001)
        assert sorted(names(line)) == ["a", "b"]


def test_an_earlier_ticket_moves_the_timer_forward():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        line.delay(ticket(trace="late"), 100.0)
        line.delay(ticket(trace="soon"), 1.0)
        await clock.sleep(1.001)
        assert names(line) == ["soon"]
        await clock.sleep(99)
        assert names(line) == ["late"]


@pytest.mark.parametrize("order", ["fifo", "lifo", "deadline", "priority"])
def test_removal_finds_tickets_wherever_they_wait_and_keeps_the_rest_in_order(order: str):
    @virtually(order)
    async def _(line: Line, clock: VirtualClock) -> None:
        for number in range(6):
            line.put(
                ticket(
                    key="old" if number % 2 else "new", trace=f"r{number}", created=number, priority=-number
                )
            )
        for trace, key in (("u0", "old"), ("u1", "new")):
            line.put_first(ticket(key=key, trace=trace))
        for trace, key in (("d0", "old"), ("d1", "new")):
            line.delay(ticket(key=key, trace=trace), 1.0)
        removed = line.remove(lambda one: one.key == "old")
        assert {one.trace_id for one in removed} == {"u0", "r1", "r3", "r5", "d0"}
        assert len(line) == 5
        ready = ["r4", "r2", "r0"] if order == "lifo" else ["r0", "r2", "r4"]
        assert names(line) == ["u1", *ready]
        await clock.sleep(2)
        assert names(line) == ["d1"]


@pytest.mark.parametrize(("order", "taken"), [("fifo", "abcd"), ("deadline", "cbda"), ("priority", "bcad")])
def test_tickets_that_got_another_date_wait_in_the_order_of_that(order: str, taken: str):
    @virtually(order)
    async def _(line: Line, clock: VirtualClock) -> None:
        made = waiting()
        for one in made:
            line.put(one)
        made[2].created = -1.0
        line.rank_anew()
        assert "".join(names(line)) == taken


def test_removing_nothing_changes_nothing():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        line.put(ticket())
        assert line.remove(lambda one: False) == []
        assert len(line) == 1


def test_looking_through_the_line_shows_everyone_and_takes_nobody():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        line.put(ticket(trace="r"))
        line.put_first(ticket(trace="u"))
        line.delay(ticket(trace="d"), 1.0)
        assert {one.trace_id for one in line} == {"r", "u", "d"}
        assert len(line) == 3


def test_a_closed_line_has_no_timer_left():
    @virtually()
    async def _(line: Line, clock: VirtualClock) -> None:
        woken: list[int] = []
        line.on_ready = woken.append
        line.delay(ticket(), 1.0)
        line.close()
        line.close()
        await clock.sleep(5)
        assert woken == []
