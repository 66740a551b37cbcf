"""What an earlier run left: answers to deliver, tickets to ask about, keys done already."""

from __future__ import annotations

from typing import Any

from pipeline.callback.stage import CallbackStage
from pipeline.clock import Clock
from pipeline.config import LaneConfig
from pipeline.control.controller import Controller
from pipeline.journal.journal import Journal
from pipeline.journal.recovery import Recovered, Unanswered, Undelivered
from pipeline.pull.stage import PullStage
from pipeline.queue.ticket_queue import TicketQueue
from pipeline.ticket import SIMULATED, Outcome, Ticket

#: Of the traces that one event names.
LISTED_MAX = 200


class Recovery:
    def __init__(
        self,
        lane: str,
        config: LaneConfig,
        controller: Controller,
        queue: TicketQueue,
        pull: PullStage,
        callback: CallbackStage,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self._lane = lane
        self._config = config
        self._controller = controller
        self._ledger = controller.ledger
        self._queue = queue
        self._pull = pull
        self._callback = callback
        self._journal = journal
        self._clock = clock

    async def run_once(self) -> dict[str, Any]:
        """Answers what there is to tell of it; nothing after a clean end that left nothing."""
        config = self._config
        found = await self._journal.recover(
            self._lane,
            self._clock.now(),
            query_age=config.query.stale_age,
            again_age=config.query.max_age,
            callback_age=config.callback.max_age,
            keys_max=2 * config.queue.bucket_keys,
        )
        for key in found.processed:
            self._queue.processed.add(key)
        undelivered = [one for one in found.undelivered if self._belongs_here(one.ticket)]
        unanswered = [one for one in found.unanswered if self._belongs_here(one.ticket)]
        self._take_up(undelivered, unanswered)
        self._ledger.count("pulled", found.dropped)
        self._ledger.count(Outcome.RESTART, found.dropped)
        return self._told(found, undelivered, unanswered)

    def _take_up(self, undelivered: list[Undelivered], unanswered: list[Unanswered]) -> None:
        taken_up = len(undelivered) + len(unanswered)
        self._ledger.count("pulled", taken_up)
        self._ledger.count("recovered", taken_up)
        self._ledger.count("maybe_paid", sum(one.maybe_paid for one in unanswered))
        for answered in undelivered:
            self._queue.adopt(answered.ticket)
            self._callback.restore(answered.ticket, answered.kept)
        for one in unanswered:
            self._pull.take_up(one.ticket)

    def _belongs_here(self, ticket: Ticket) -> bool:
        """Not if the lane was simulated then and is real now, or the other way round: to go on would be to
        pay for what nobody asked for, or to hand a real answer to nobody."""
        if bool(ticket.payload.get(SIMULATED)) == (self._config.source == "sim"):
            return True
        self._ledger.count("pulled")
        self._controller.finish(ticket, Outcome.RESTART)
        self._journal.ended(self._lane, ticket, str(Outcome.RESTART))
        return False

    def _told(
        self, found: Recovered, undelivered: list[Undelivered], unanswered: list[Unanswered]
    ) -> dict[str, Any]:
        taken_up = len(undelivered) + len(unanswered)
        dropped = self._ledger.counters[Outcome.RESTART]
        if found.clean and not taken_up and not dropped:
            return {}
        maybe_paid = [one.ticket.trace_id for one in unanswered if one.maybe_paid]
        return {
            "unclean": not found.clean,
            "recovered": taken_up,
            "undelivered": len(undelivered),
            "maybe_paid": len(maybe_paid),
            "dropped": dropped,
        } | ({"maybe_paid_traces": maybe_paid[:LISTED_MAX]} if maybe_paid else {})
