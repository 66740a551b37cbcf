"""The callback stage: every answer goes out while it is worth something, again and again if need be."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from pipeline.clock import Clock
from pipeline.config import LaneConfig
from pipeline.control.controller import Controller
from pipeline.errors import JournalFault
from pipeline.ports import Recorder, Sink
from pipeline.queue.line import Line
from pipeline.queue.ticket_queue import TicketQueue
from pipeline.slots import SlotPool
from pipeline.ticket import Answer, Outcome, Receipt, Stored, Ticket, Verdict

#: For answers in hand to reach the disk at the end.
KEEP_SECONDS = 3.0
#: For a disk that cannot be read now.
READ_AGAIN_AFTER = 1.0

StepSink = Callable[[str, Ticket, str], None]


class Backlog:
    """How many undelivered answers there are and how large; one shared by several tickets counts once."""

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0  # on disk or in memory
        self.in_memory = 0
        self._holders: dict[int, int] = {}

    def add(self, answer: Answer) -> None:
        self.count += 1
        if self._hold(answer):
            self.bytes += len(answer.body)

    def add_stored(self, size: int) -> None:
        """One that is on disk only."""
        self.count += 1
        self.bytes += size

    def swap_in(self, answer: Answer) -> None:
        self._hold(answer)

    def swap_out(self, answer: Answer) -> None:
        self._drop(answer)

    def remove(self, answer: Answer | None, stored_size: int) -> None:
        self.count -= 1
        if answer is None:
            self.bytes -= stored_size
        elif self._drop(answer):
            self.bytes -= len(answer.body)

    def _hold(self, answer: Answer) -> bool:
        """True for the first holder."""
        holders = self._holders.get(id(answer), 0)
        self._holders[id(answer)] = holders + 1
        if not holders:
            self.in_memory += len(answer.body)
        return not holders

    def _drop(self, answer: Answer) -> bool:
        """True for the last holder."""
        holders = self._holders.pop(id(answer)) - 1
        if holders:
            self._holders[id(answer)] = holders
            return False
        self.in_memory -= len(answer.body)
        return True


class CallbackStage:
    def __init__(
        self,
        config: LaneConfig,
        sink: Sink,
        queue: TicketQueue,
        controller: Controller,
        clock: Clock,
        step: StepSink,
        journal: Recorder,
    ) -> None:
        self.config = config
        self._sink = sink
        self._queue = queue
        self._controller = controller
        self._control = controller.stages["callback"]
        self._clock = clock
        self._step = step
        self._journal = journal
        self.line = Line(clock)
        self.backlog = Backlog()
        self.calling: dict[Ticket, None] = {}
        callback = config.callback
        self.pool = SlotPool[Ticket](
            self._control, callback.workers * callback.batch, clock, self._next_job, self._work, self._crashed
        )
        self.line.on_ready = self.pool.wake

    def submit(self, leader: Ticket, answer: Answer) -> None:
        """An answer has come: one callback for the ticket and one for each that joined it."""
        party, leader.followers = [leader, *leader.followers], []
        for ticket in party:
            ticket.answer = answer
            self.backlog.add(answer)
        # The slot that brought the answer takes one of these at once: see `carry_on`.
        self.line.put_all(party, wake=len(party) - 1)

    def carry_on(self) -> Coroutine[Any, Any, None] | None:
        """A callback for a query's slot to make, now that its answer has come.

        The answer is still in the core's own cache then. Left for a callback's slot it waits until all
        answers of this turn of the loop have been read, and comes from far away: 2 to 4 % of the tickets/s
        with 100 KB answers.
        """
        ticket = self._next_job()
        return None if ticket is None else self._carry(ticket)

    async def _carry(self, ticket: Ticket) -> None:
        if self.line.pending:
            self.pool.wake()
        await self.pool.run(ticket)
        if self.line.pending:
            self.pool.wake()

    def submit_one(self, ticket: Ticket) -> None:
        assert ticket.answer is not None
        self.backlog.add(ticket.answer)
        self.line.put(ticket)

    def restore(self, ticket: Ticket, kept: Stored) -> None:
        """A ticket of an earlier run whose answer is on disk."""
        ticket.kept = kept
        self.backlog.add_stored(kept.size)
        self.line.put(ticket)

    async def keep_rest(self) -> None:
        """The end has come: answers in hand go to disk, or the next run would have to pay for them again."""
        with suppress(TimeoutError):  # a disk in trouble must not hold up the end
            async with asyncio.timeout(KEEP_SECONDS):
                while sum(map(self._keep, (*self.calling, *self.line))):
                    await self._journal.flush()  # makes room for those that found none

    def _keep(self, ticket: Ticket) -> bool:
        """True if its answer is on its way to disk only now."""
        if ticket.answer is None or ticket.kept is not None:
            return False
        ticket.kept = self._journal.keep(ticket, ticket.answer)
        return ticket.kept is not None

    def spill(self) -> None:
        """Answers that wait for a later try leave memory when there are too many; the disk has them."""
        bound = self.config.callback.backlog_bytes // 2
        if self.backlog.in_memory <= bound:
            return
        for ticket in self.line.waiting():
            answer, kept = ticket.answer, ticket.kept
            if answer is not None and kept is not None and kept.claims == 1 and kept.let_go():
                self.backlog.swap_out(answer)
                ticket.answer = None
                if self.backlog.in_memory <= bound:
                    return

    # -- choosing ----------------------------------------------------------------------------------

    def _next_job(self) -> Ticket | None:
        while self._control.may_start():
            ticket = self.line.take()
            if ticket is None:
                return None
            if self._fits(ticket) and self._afford(ticket):
                self.calling[ticket] = None
                return ticket
        return None

    def _fits(self, ticket: Ticket) -> bool:
        if ticket.age(self._clock.now()) <= self.config.callback.max_age:
            return True
        self._end(ticket, Outcome.RETRY_EXPIRED if ticket.callbacks else Outcome.CALLBACK_EXPIRED)
        return False

    def _afford(self, ticket: Ticket) -> bool:
        if not ticket.callbacks:
            self._control.budget.call()
            return True
        if self._control.budget.spend(self._clock.monotonic()):
            self._controller.ledger.count("retries")
            return True
        self.line.delay(ticket, random.uniform(0.5, 1.5))
        return False

    # -- calling -----------------------------------------------------------------------------------

    async def _work(self, ticket: Ticket) -> float:
        try:
            answer, saving = ticket.answer, self._journal.saving(ticket)
            if saving is not None or answer is None:
                answer = await self._wait_for_disk(ticket, saving)
                if not self._fits(ticket):
                    return 0.0
            receipt = await self._call(ticket, answer) if answer else None
        except JournalFault:
            # Its answer is on disk, and the disk will be read again; until then it is only late.
            self.line.delay(ticket, READ_AGAIN_AFTER)
            return 0.0
        finally:
            self.calling.pop(ticket, None)
        if receipt is None:
            self._end(ticket, Outcome.CRASHED)
        else:
            self._follow(ticket, receipt)
        return 0.0

    async def _wait_for_disk(self, ticket: Ticket, saving: Awaitable[None] | None) -> Answer | None:
        """Its answer is still on the way there, or must come back from there."""
        if saving is None:
            return await self._bring_back(ticket)
        await saving
        return ticket.answer

    async def _bring_back(self, ticket: Ticket) -> Answer | None:
        answer = await self._journal.fetch(ticket.kept)
        if answer is None:
            return None
        ticket.answer = answer
        self.backlog.swap_in(answer)
        joined, ticket.followers = ticket.followers, []
        for follower in joined:
            follower.answer = answer
            self.submit_one(follower)
        return answer

    async def _call(self, ticket: Ticket, answer: Answer) -> Receipt:
        clock, control = self._clock, self._control
        issued = control.begin(clock.monotonic())
        receipt: Receipt | None = None
        self._journal.calling(ticket)
        try:
            receipt = await self._sink.deliver(ticket, answer, self._timeout(ticket))
            return receipt
        finally:
            now = clock.monotonic()
            if receipt is None:
                control.end_unsaid(issued, now)
            else:
                control.end(issued, now, ok=receipt.verdict is not Verdict.FAULT, why=receipt.detail)

    def _timeout(self, ticket: Ticket) -> float:
        left = self.config.callback.max_age - ticket.age(self._clock.now())
        limit = self.config.callback.timeout
        return max(0.05, min(left, limit) if limit else left)

    def _follow(self, ticket: Ticket, receipt: Receipt) -> None:
        retried, ticket.callbacks = ticket.callbacks, ticket.callbacks + 1
        if receipt.verdict is Verdict.FAULT:
            self._fault(ticket, receipt)
            return
        if retried:
            self._control.budget.refund(self._clock.monotonic())
        delivered = receipt.verdict is Verdict.ANSWERED
        self._end(ticket, Outcome.DELIVERED if delivered else Outcome.REJECTED)

    def _fault(self, ticket: Ticket, receipt: Receipt) -> None:
        self._controller.ledger.count("callback_faults")
        self._step("callback", ticket, str(Verdict.FAULT))
        if receipt.trouble:
            self._controller.trouble("callback", receipt.trouble, receipt.detail)
        if ticket.callbacks > self.config.callback.retries:
            self._end(ticket, Outcome.RETRY_EXHAUSTED)
            return
        wait = self.config.callback.retry_interval * ticket.callbacks * random.uniform(0.7, 1.3)
        wait = max(wait, receipt.retry_after or 0.0)
        if ticket.age(self._clock.now()) + wait > self.config.callback.max_age:
            self._end(ticket, Outcome.RETRY_EXPIRED)
        else:
            self._keep(ticket)
            self.line.delay(ticket, wait)

    def _end(self, ticket: Ticket, outcome: Outcome) -> None:
        self._controller.finish(ticket, outcome)
        self._step("callback", ticket, str(outcome))
        self.backlog.remove(ticket.answer, ticket.kept.size if ticket.kept else 0)
        self._queue.promote(ticket)
        self._queue.leave(ticket, delivered=outcome is Outcome.DELIVERED)
        if self._queue.leader(ticket.key) is not ticket:
            ticket.answer = None

    def clean(self) -> int:
        """L5: what grew too old in the retry queue or waiting behind a hold."""
        now, max_age = self._clock.now(), self.config.callback.max_age
        expired = self.line.remove(lambda ticket: ticket.age(now) > max_age)
        for ticket in expired:
            self._end(ticket, Outcome.RETRY_EXPIRED if ticket.callbacks else Outcome.CALLBACK_EXPIRED)
        return len(expired)

    def _crashed(self, ticket: Ticket | None, error: Exception) -> None:
        self._controller.crashed("callback", error)
        if ticket is None or ticket.outcome is not None:
            return
        ticket.crashes += 1
        if ticket.crashes > self.config.callback.retries:
            self._end(ticket, Outcome.CRASHED)
        else:
            self.line.delay(ticket, 1.0)
