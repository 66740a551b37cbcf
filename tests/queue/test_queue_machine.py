"""The ticket queue under any sequence of offers, answers, drops, retries and time, against a dictionary."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from queue_makers import PROPERTY, ticket

from pipeline.config import QueueConfig
from pipeline.queue.ticket_queue import Offer, TicketQueue
from pipeline.sim.virtual import VirtualClock, VirtualLoop
from pipeline.ticket import Answer, Ticket, Verdict

JOINED_MAX = 4
RANK = {
    "fifo": lambda at, one: at,
    "lifo": lambda at, one: -at,
    "deadline": lambda at, one: (one.created, at),
    "priority": lambda at, one: (-one.priority, at),
}


class QueueMachine(RuleBasedStateMachine):
    @initialize(
        order=st.sampled_from(["fifo", "lifo", "deadline", "priority"]),
        dedupe=st.sampled_from(["join", "drop"]),
    )
    def begin(self, order: str, dedupe: str) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.order, self.dedupe = order, dedupe
        config = QueueConfig(order=order, dedupe=dedupe, joined_max=JOINED_MAX, bucket_keys=1000)
        self.queue = TicketQueue(config, self.clock)
        # the model: who is where
        self.arrived = 0
        self.ready: list[tuple[int, Ticket]] = []
        self.urgent: list[Ticket] = []
        self.delayed: list[tuple[float, int, Ticket]] = []
        self.asking: list[Ticket] = []
        self.calling: list[Ticket] = []
        self.open: dict[str, list[Ticket]] = {}
        self.told: dict[str, list[str]] = {}  # delivered traces of keys in flight
        self.processed: set[str] = set()
        self.offered = self.duplicates = 0
        self.ended: list[Ticket] = []

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.queue.line.close()
            self.loop.close()

    # -- what happens -------------------------------------------------------------------------------

    @rule(
        key=st.sampled_from("abcd"),
        trace=st.sampled_from("1234567"),
        created=st.integers(0, 3),
        priority=st.integers(0, 2),
    )
    def offer(self, key: str, trace: str, created: int, priority: int) -> None:
        one = ticket(key, trace, float(created), priority)
        expected = self._expected_offer(one)
        leader = self.queue.leader(key)
        assert self.queue.offer(one) is expected
        self.offered += 1
        if expected is Offer.DUPLICATE:
            self.duplicates += 1
            return
        self.open.setdefault(key, []).append(one)
        if expected is Offer.QUEUED:
            self.arrived += 1
            self.ready.append((self.arrived, one))
        elif expected is Offer.ANSWERED:
            assert leader is not None
            assert one.answer is leader.answer
            self.calling.append(one)

    def _expected_offer(self, one: Ticket) -> Offer:
        fellows = self.open.get(one.key, [])
        if not fellows:
            return Offer.DUPLICATE if one.key in self.processed else Offer.QUEUED
        traces = [*(fellow.trace_id for fellow in fellows), *self.told.get(one.key, [])]
        if self.dedupe == "drop" or len(traces) >= JOINED_MAX or one.trace_id in traces:
            return Offer.DUPLICATE
        unanswered = any(fellow in self._leading() for fellow in fellows)
        return Offer.JOINED if unanswered else Offer.ANSWERED

    @rule()
    def take(self) -> None:
        expected = None
        if self.urgent:
            expected = self.urgent.pop(0)
        elif self.ready:
            first = min(self.ready, key=lambda entry: RANK[self.order](*entry))
            self.ready.remove(first)
            expected = first[1]
        assert self.queue.line.take() is expected
        if expected is not None:
            self.asking.append(expected)

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        leader = self._pick(data, self.asking)
        answer = Answer(Verdict.ANSWERED, b"{}")
        party, leader.followers = [leader, *leader.followers], []
        for one in party:
            one.answer = answer
            self.calling.append(one)

    @precondition(lambda self: self.calling)
    @rule(data=st.data(), delivered=st.booleans())
    def end_after_the_callback(self, data: st.DataObject, delivered: bool) -> None:
        one = self._pick(data, self.calling)
        self._end(one, delivered)
        if self.queue.leader(one.key) is not one:
            one.answer = None

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def drop_without_an_answer(self, data: st.DataObject) -> None:
        self._drop(self._pick(data, self.asking))

    @precondition(lambda self: self.asking)
    @rule(data=st.data(), quarters=st.integers(1, 12))
    def ask_again_later(self, data: st.DataObject, quarters: int) -> None:
        one = self._pick(data, self.asking)
        self.loop.run_until_complete(self._delay(one, quarters / 4))
        self.arrived += 1
        self.delayed.append((self.clock.monotonic() + quarters / 4, self.arrived, one))

    @precondition(lambda self: self.asking)
    @rule(data=st.data())
    def give_back_unharmed(self, data: st.DataObject) -> None:
        one = self._pick(data, self.asking)
        self.queue.line.put_first(one)
        self.urgent.append(one)

    @rule(quarters=st.integers(1, 8))
    def pass_time(self, quarters: int) -> None:
        self.loop.run_until_complete(self.clock.sleep(quarters / 4))
        due = sorted(entry for entry in self.delayed if entry[0] <= self.clock.monotonic())
        self.delayed = [entry for entry in self.delayed if entry not in due]
        self.urgent += [entry[2] for entry in due]

    @rule(created=st.integers(0, 3))
    def clean(self, created: int) -> None:
        removed = self.queue.line.remove(lambda one: one.created == created)
        waiting = [*self.urgent, *(e[1] for e in self.ready), *(e[2] for e in self.delayed)]
        assert set(map(id, removed)) == {id(one) for one in waiting if one.created == created}
        self.urgent = [one for one in self.urgent if one.created != created]
        self.ready = [entry for entry in self.ready if entry[1].created != created]
        self.delayed = [entry for entry in self.delayed if entry[2].created != created]
        for one in removed:
            self._drop(one)

    # -- helpers -----------------------------------------------------------------------------------

    async def _delay(self, one: Ticket, seconds: float) -> None:
        self.queue.line.delay(one, seconds)

    def _pick(self, data: st.DataObject, place: list[Ticket]) -> Ticket:
        return place.pop(data.draw(st.integers(0, len(place) - 1)))

    def _drop(self, one: Ticket) -> None:
        followers = list(one.followers)
        heir = self.queue.promote(one)
        assert heir is (followers[0] if followers else None)
        if heir is not None:
            assert heir.followers == followers[1:], "a follower was lost"
            assert self.queue.leader(one.key) is heir
            self.urgent.append(heir)
        self._end(one, delivered=False)

    def _end(self, one: Ticket, delivered: bool) -> None:
        self.queue.leave(one, delivered)
        assert one not in self.ended
        self.ended.append(one)
        if delivered:
            self.processed.add(one.key)
            self.told.setdefault(one.key, []).append(one.trace_id)
        self.open[one.key].remove(one)
        if not self.open[one.key]:
            del self.open[one.key]
            self.told.pop(one.key, None)

    def _leading(self) -> list[Ticket]:
        """Tickets that have no answer and are not merely following."""
        waiting = [*self.urgent, *(e[1] for e in self.ready), *(e[2] for e in self.delayed)]
        return [*waiting, *self.asking]

    # -- what always holds --------------------------------------------------------------------------

    @invariant()
    def nobody_is_lost(self) -> None:
        if hasattr(self, "ended"):
            asking = sum(one.party for one in self.asking)
            flying = self.queue.waiting_tickets() + asking + len(self.calling)
            assert self.offered == self.duplicates + len(self.ended) + flying
            assert flying == sum(map(len, self.open.values()))

    @invariant()
    def one_leader_and_one_paid_query_per_key(self) -> None:
        if hasattr(self, "ended"):
            leading = [one.key for one in self._leading()]
            assert len(leading) == len(set(leading))
            assert self.queue.keys_in_flight == len(self.open)
            for one in self._leading():
                assert self.queue.leader(one.key) is one

    @invariant()
    def the_line_counts_right(self) -> None:
        if hasattr(self, "ended"):
            line = self.queue.line
            assert line.pending == len(self.ready) + len(self.urgent)
            assert line.delayed == len(self.delayed)
            assert self.queue.depth == len(line) == line.pending + line.delayed

    @invariant()
    def the_processed_keys_are_those_delivered(self) -> None:
        if hasattr(self, "ended"):
            assert {key for key in "abcd" if key in self.queue.processed} == self.processed


QueueMachine.TestCase.settings = PROPERTY
TestQueueMachine = QueueMachine.TestCase
