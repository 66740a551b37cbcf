"""The query stage: one paid call per key, and what follows from each answer."""

from __future__ import annotations

import random
from collections.abc import Callable

from pipeline.clock import Clock
from pipeline.config import LaneConfig
from pipeline.control.controller import Controller
from pipeline.control.gate import Reason
from pipeline.ports import Provider, Recorder
from pipeline.queue.ticket_queue import TicketQueue
from pipeline.slots import SlotPool
from pipeline.ticket import Answer, Outcome, Ticket, Verdict

#: A ticket that meets the same bug this often is dropped.
CRASHES_MAX = 2
PROCESSING_STEP = 0.5
REFUSALS = frozenset({Verdict.CREDIT, Verdict.AUTH})
PROCESSING_MAX = 3.0

StepSink = Callable[[str, Ticket, str], None]


class QueryStage:
    def __init__(
        self,
        config: LaneConfig,
        provider: Provider,
        queue: TicketQueue,
        controller: Controller,
        clock: Clock,
        step: StepSink,
        submit: Callable[[Ticket, Answer], None],
        journal: Recorder,
    ) -> None:
        self.config = config
        self._provider = provider
        self._queue = queue
        self._controller = controller
        self._control = controller.stages["query"]
        self._clock = clock
        self._step = step
        self._submit = submit
        self._journal = journal
        self.asking: dict[Ticket, None] = {}
        query, callback = config.query, config.callback
        # Some are away with a callback while others ask.
        slots = query.workers * query.batch + callback.workers * callback.batch
        self.pool = SlotPool[Ticket](self._control, slots, clock, self._next_job, self._work, self._crashed)
        queue.line.on_ready = self.pool.wake

    # -- choosing ----------------------------------------------------------------------------------

    def _next_job(self) -> Ticket | None:
        while self._control.may_start():
            ticket = self._queue.line.take()
            if ticket is None:
                return None
            if self._fits(ticket) and self._afford(ticket):
                self.asking[ticket] = None
                return ticket
        return None

    def _fits(self, ticket: Ticket) -> bool:
        """L2 before the first query, L3 before later ones, and never one that cannot be delivered."""
        age, query = ticket.age(self._clock.now()), self.config.query
        last = min(query.max_age, self.config.callback.max_age)
        if ticket.queries and age > query.max_age:
            self.drop(ticket, Outcome.QUERY_EXPIRED)
        elif (not ticket.queries and age > query.stale_age) or age + self._time_needed() > last:
            self.drop(ticket, Outcome.QUERY_STALE)
        else:
            return True
        return False

    def _time_needed(self) -> float:
        return self._control.median + self._controller.stages["callback"].median

    def _afford(self, ticket: Ticket) -> bool:
        """Fault retries stay within their budget; one that must wait is postponed, not lost."""
        if not ticket.faults:
            self._control.budget.call()
            return True
        if self._control.budget.spend(self._clock.monotonic()):
            self._controller.ledger.count("retries")
            return True
        self._queue.line.delay(ticket, random.uniform(0.5, 1.5))
        return False

    # -- asking ------------------------------------------------------------------------------------

    async def _work(self, ticket: Ticket) -> float:
        epoch = self._control.gate.epoch
        try:
            answer = await self.ask(ticket)
        finally:
            self.asking.pop(ticket, None)
        self._follow(ticket, answer, epoch)
        return 0.0

    async def ask(self, ticket: Ticket) -> Answer:
        clock, control = self._clock, self._control
        issued = control.begin(clock.monotonic())
        ticket.queries += 1
        self._controller.ledger.count("queried")
        answer: Answer | None = None
        self._journal.asking(ticket)
        try:
            answer = await self._provider.query(ticket, self._timeout(ticket))
            return answer
        finally:
            now = clock.monotonic()
            if answer is None or answer.verdict in REFUSALS:
                control.end_unsaid(issued, now)
            else:
                ok, throttled = not answer.verdict.is_fault, answer.throttled
                control.end(issued, now, ok=ok, throttled=throttled, why=answer.detail)

    def _timeout(self, ticket: Ticket) -> float:
        left = self.config.query.max_age - ticket.age(self._clock.now())
        limit = self.config.query.timeout
        return max(0.05, min(left, limit) if limit else left)

    # -- what follows ------------------------------------------------------------------------------

    def _follow(self, ticket: Ticket, answer: Answer, epoch: int) -> None:
        verdict = answer.verdict
        self._journal.answered(ticket, answer)
        self._step("query", ticket, str(verdict))
        if ticket.faults and not verdict.is_fault:
            self._control.budget.refund(self._clock.monotonic())
        if verdict.is_result:
            self._controller.ledger.count(verdict)
            self._controller.room.answered()
            self._submit(ticket, answer)
        elif verdict is Verdict.PROCESSING:
            ticket.faults = 0
            self._controller.ledger.count("processing")
            self._again(ticket, answer, min(PROCESSING_STEP * ticket.queries, PROCESSING_MAX))
        elif verdict in REFUSALS:
            self._refused(ticket, answer, epoch)
        else:
            self._fault(ticket, answer)

    def _again(self, ticket: Ticket, answer: Answer, wait: float) -> None:
        self._controller.room.came_back()
        wait = max(answer.retry_after or 0.0, wait * random.uniform(0.8, 1.2))
        if ticket.age(self._clock.now()) + wait > self.config.query.max_age:
            self.drop(ticket, Outcome.QUERY_EXPIRED)
        else:
            self._queue.line.delay(ticket, wait)

    def _fault(self, ticket: Ticket, answer: Answer) -> None:
        ledger = self._controller.ledger
        ledger.count("provider_error" if answer.verdict is Verdict.PROVIDER_ERROR else "query_faults")
        if answer.maybe_paid:
            ledger.count("maybe_paid")
        if answer.trouble:
            self._controller.trouble("query", answer.trouble, answer.detail)
        ticket.faults += 1
        retry = self.config.retry
        # Too many calls at once are the limiter's to cure; a ticket that waited longer for each refusal
        # would be overtaken by younger ones until its time is up.
        doublings = 0 if answer.throttled else min(ticket.faults - 1, 10)
        self._again(ticket, answer, min(retry.delay * 2**doublings, retry.delay_max))

    def _refused(self, ticket: Ticket, answer: Answer, epoch: int) -> None:
        """Credit or auth: the ticket goes back unharmed, and nobody asks until a probe gets through."""
        ticket.queries -= 1
        self._queue.line.put_first(ticket)
        if epoch != self._control.gate.epoch:
            return  # asked before the gate last opened: that was known then
        reason = Reason.CREDIT if answer.verdict is Verdict.CREDIT else Reason.AUTH
        says = "credit is out" if reason is Reason.CREDIT else "provider refuses our credentials"
        probes = f"probe every {self.config.query.probe_interval:g} s, or operator"
        self._controller.hold(("pull", "query"), reason, "query", f"{says}: {answer.detail}", probes)

    def drop(self, ticket: Ticket, outcome: Outcome) -> None:
        """End this ticket; those that joined it go on without it."""
        self._controller.finish(ticket, outcome)
        self._step("query", ticket, str(ticket.outcome))
        self._queue.promote(ticket)
        self._queue.leave(ticket, delivered=False)

    def clean(self, stale: bool = False) -> int:
        """Every 30 s: what grew too old while waiting; `stale` = too old for a first query too."""
        now, max_age = self._clock.now(), self.config.queue.max_age
        if stale:
            max_age = min(max_age, self.config.query.stale_age - self._time_needed())
        expired = self._queue.line.remove(lambda ticket: ticket.age(now) > max_age)
        for ticket in expired:
            self.drop(ticket, Outcome.QUEUE_EXPIRED)
        return len(expired)

    async def probe(self) -> bool | None:
        """One ticket past a credit or auth hold: did it get through? None if there was no ticket."""
        ticket = self._queue.line.take()
        while ticket is not None and not self._fits(ticket):
            ticket = self._queue.line.take()
        if ticket is None:
            return None
        self.asking[ticket] = None
        answer = None
        try:
            answer = await self.ask(ticket)
        finally:
            self.asking.pop(ticket, None)
            if answer is None:
                self._queue.line.put_first(ticket)
        self._follow(ticket, answer, self._control.gate.epoch)
        return answer.verdict not in REFUSALS

    def _crashed(self, ticket: Ticket | None, error: Exception) -> None:
        self._controller.crashed("query", error)
        if ticket is None or ticket.outcome is not None:
            return
        ticket.crashes += 1
        if ticket.crashes > CRASHES_MAX:
            self.drop(ticket, Outcome.CRASHED)
        else:
            self._queue.line.delay(ticket, 1.0)
