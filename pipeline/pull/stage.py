"""The pull stage: reserve room, pull that many, sort what came in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pipeline.clock import Clock
from pipeline.config import LaneConfig
from pipeline.control.controller import Controller
from pipeline.control.gate import Reason
from pipeline.control.pollers import Pollers
from pipeline.ports import Pulled, Source
from pipeline.queue.ticket_queue import Offer, TicketQueue
from pipeline.slots import SlotPool
from pipeline.ticket import Outcome, Ticket, Verdict

#: What "0 = no time-out" means for a pull, which has no ticket whose deadline could end it.
PULL_TIMEOUT = 60.0

StepSink = Callable[[str, Ticket, str], None]


class PullStage:
    def __init__(
        self,
        config: LaneConfig,
        source: Source,
        queue: TicketQueue,
        controller: Controller,
        clock: Clock,
        step: StepSink,
        submit: Callable[[Ticket], None],
    ) -> None:
        self.config = config
        self._source = source
        self._queue = queue
        self._controller = controller
        self._control = controller.stages["pull"]
        self._clock = clock
        self._step = step
        self._submit = submit
        pull = config.pull
        self._pollers = Pollers(pull.workers * pull.batch)
        self.pool = SlotPool[int](
            self._control,
            pull.workers * pull.batch,
            clock,
            self._next_job,
            self._work,
            self._crashed,
            spread=pull.interval,
        )

    def _next_job(self) -> int | None:
        if not self._control.may_start():
            return None
        if self.pool.engaged >= self._pollers.number:
            return None
        controller = self._controller
        return controller.room.reserve(controller.depth_ahead(self._queue.depth)) or None

    def wake_if_room(self) -> None:
        if self.pool.coming or self.pool.engaged >= self._pollers.number:
            return  # one is about to ask; or those at work will, when they are done
        controller = self._controller
        if controller.room.reserve_possible(controller.depth_ahead(self._queue.depth)):
            self.pool.wake()

    async def _work(self, reserved: int) -> float:
        pulled = await self.call(reserved)
        room = self._controller.room
        if pulled is None or pulled.verdict is not Verdict.ANSWERED:
            room.give_back(reserved)
            return self._back_off(pulled)
        handed = len(pulled.tickets) + pulled.malformed
        self.take_in(pulled, reserved)
        room.settle(reserved, handed, self._clock.monotonic())
        rest = self._pollers.learn(reserved, handed)
        # A pull that came back poorer than it asked leaves room for another; a full one may go on itself.
        self.pool.wake()
        return self.config.pull.interval * rest * random.uniform(0.75, 1.25)

    async def call(self, limit: int) -> Pulled | None:
        """One pull, with its evidence recorded."""
        clock, control = self._clock, self._control
        issued = control.begin(clock.monotonic())
        pulled: Pulled | None = None
        try:
            pulled = await self._source.pull(limit, self.config.pull.timeout or PULL_TIMEOUT)
            return pulled
        finally:
            now = clock.monotonic()
            if pulled is None or pulled.verdict is Verdict.AUTH:
                control.end_unsaid(issued, now)
            else:
                control.end(issued, now, ok=pulled.verdict is Verdict.ANSWERED, why=pulled.detail)

    def _back_off(self, pulled: Pulled | None) -> float:
        if pulled is not None and pulled.verdict is Verdict.AUTH:
            self.refuse(pulled.detail)
            return 0.0
        self._controller.ledger.count("pull_faults")
        if pulled is not None and pulled.trouble:
            self._controller.trouble("pull", pulled.trouble, pulled.detail)
        # No longer pauses here: an upstream that stays down is the breaker's to wait for.
        asked = pulled.retry_after if pulled and pulled.retry_after is not None else 0.0
        return max(asked, self.config.pull.interval * random.uniform(0.75, 1.25))

    def refuse(self, detail: str) -> None:
        self._controller.hold(
            ("pull", "query"),
            Reason.AUTH,
            "pull",
            f"upstream refuses our credentials: {detail}",
            f"probe every {self.config.query.probe_interval:g} s, or operator",
        )

    # -- what came in ------------------------------------------------------------------------------

    def take_in(self, pulled: Pulled, asked: int) -> None:
        ledger = self._controller.ledger
        ledger.count("pulled", len(pulled.tickets) + pulled.malformed)
        ledger.count(Outcome.MALFORMED, pulled.malformed)
        ledger.count("undated", pulled.undated)
        fitting = self._cut(pulled.tickets, asked)
        now = self._clock.now()
        for ticket in fitting:
            self._sort(ticket, now)

    def _cut(self, tickets: Sequence[Ticket], asked: int) -> Sequence[Ticket]:
        """Upstream may hand out more than asked; up to one batch over the high mark is taken."""
        capacity = self.config.queue.high_water + self.config.pull.limit
        room = max(asked, capacity - self._queue.depth - self._controller.room.reserved)
        if len(tickets) <= room:
            return tickets
        for ticket in tickets[room:]:
            self._controller.finish(ticket, Outcome.OVERFLOW)
        self._controller.overflowed(asked, len(tickets), len(tickets) - room)
        return tickets[:room]

    def _sort(self, ticket: Ticket, now: float) -> None:
        self._date(ticket, now)
        if ticket.age(now) > self.config.pull.max_age:
            self._end(ticket, Outcome.PULL_EXPIRED)
            return
        offer = self._queue.offer(ticket)
        if offer is Offer.DUPLICATE:
            self._end(ticket, Outcome.DUPLICATE)
            return
        self._controller.room.pulled(ticket.age(now))
        self._step("pull", ticket, str(offer))
        if offer is not Offer.QUEUED:
            self._controller.ledger.count("joined")
        if offer is Offer.ANSWERED:
            self._submit(ticket)

    def take_up(self, ticket: Ticket) -> None:
        """A ticket of an earlier run: dated and journalled then, queued again now."""
        offer = self._queue.offer(ticket, again=True)
        if offer is Offer.DUPLICATE:
            self._end(ticket, Outcome.DUPLICATE)
        elif offer is Offer.ANSWERED:
            self._submit(ticket)

    def _date(self, ticket: Ticket, now: float) -> None:
        ticket.created = now
        if ticket.stamp is None:
            return
        self._controller.skew.sample(now - ticket.stamp)
        if ticket.stamp <= now:
            ticket.created = ticket.stamp
        else:
            self._controller.ledger.count("future_dated")

    def _end(self, ticket: Ticket, outcome: Outcome) -> None:
        self._controller.finish(ticket, outcome)
        self._step("pull", ticket, str(outcome))

    def _crashed(self, reserved: int | None, error: Exception) -> None:
        if reserved is not None:
            self._controller.room.give_back(reserved)
        self._controller.crashed("pull", error)
