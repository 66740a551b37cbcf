"""A bug of ours, or of a port that someone wrote: logged, counted, and its ticket accounted for."""

from typing import Any

from stage_play import Show, WatchedProvider, WatchedSink, WatchedSource, play

from pipeline.events import Kind
from pipeline.ports import Pulled
from pipeline.ticket import Answer, Receipt, Ticket


class Fragile:
    """Raises on every tenth call, as a bug would."""

    def __init__(self, end: Any) -> None:
        self._end = end
        self._calls = 0
        self.open, self.close = end.open, end.close
        self.volume, self.credits = getattr(end, "volume", None), getattr(end, "credits", None)

    def _stumble(self) -> None:
        self._calls += 1
        if not self._calls % 10:
            raise ZeroDivisionError("a bug")

    async def pull(self, limit: int, timeout: float) -> Pulled:
        self._stumble()
        return await self._end.pull(limit, timeout)  # type: ignore[no-any-return]

    async def query(self, ticket: Ticket, timeout: float) -> Answer:
        self._stumble()
        return await self._end.query(ticket, timeout)  # type: ignore[no-any-return]

    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        self._stumble()
        return await self._end.deliver(ticket, answer, timeout)  # type: ignore[no-any-return]


def test_workers_that_die_of_a_bug_are_replaced_and_their_tickets_accounted_for():
    def fragile(source: WatchedSource, provider: WatchedProvider, sink: WatchedSink) -> tuple[Any, Any, Any]:
        return Fragile(source), Fragile(provider), Fragile(sink)

    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["worker_crashes"] > 100
        assert {event.stage for event in show.of_kind(Kind.WORKER_CRASHED)} == {"pull", "query", "callback"}
        assert show.counters["delivered"] > 0.8 * 30 * 60
        assert show.lane.controller.room.reserved >= 0

    play(main, rate=30, ports=fragile)


def test_a_provider_that_always_raises_costs_each_ticket_two_tries_and_then_its_name():
    class Broken(Fragile):
        async def query(self, ticket: Ticket, timeout: float) -> Answer:
            raise ZeroDivisionError("a bug")

    def broken(source: WatchedSource, provider: WatchedProvider, sink: WatchedSink) -> tuple[Any, Any, Any]:
        return source, Broken(provider), sink

    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["crashed"] > 0
        assert show.counters["delivered"] == 0

    play(main, rate=10, ports=broken)
