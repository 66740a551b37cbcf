"""The books: every ticket handed to us ends exactly once, and the sum is checked, not assumed."""

from __future__ import annotations

from pipeline.errors import IllegalTransition
from pipeline.ticket import DROPPED, Outcome, Ticket

#: Counted along the way; outcomes are counted besides.
TALLIES = (
    "pulled",
    "recovered",
    "joined",
    "queried",
    "answered",
    "offline",
    "processing",
    "provider_error",
    "query_faults",
    "callback_faults",
    "pull_faults",
    "maybe_paid",
    "undated",
    "future_dated",
    "retries",
    "worker_crashes",
)

Counters = dict[str, int]


class Ledger:
    def __init__(self) -> None:
        self.counters: Counters = dict.fromkeys(TALLIES, 0) | {str(outcome): 0 for outcome in Outcome}

    def count(self, name: str, by: int = 1) -> None:
        self.counters[name] += by

    def finish(self, ticket: Ticket, outcome: Outcome) -> None:
        if ticket.outcome is not None:
            raise IllegalTransition("ticket", ticket.outcome, outcome)
        ticket.outcome = outcome
        self.counters[outcome] += 1

    @property
    def dropped(self) -> int:
        return sum(self.counters[outcome] for outcome in DROPPED)

    def conservation(self, in_flight: int) -> dict[str, object]:
        """`in_flight` is what is found in the queues and slots, so a lost ticket shows."""
        ended = sum(self.counters[outcome] for outcome in Outcome)
        pulled = self.counters["pulled"]
        return {"pulled": pulled, "accounted": ended + in_flight, "balanced": pulled == ended + in_flight}
