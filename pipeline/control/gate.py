"""One gate per stage, holding a set of reasons. Open means the set is empty."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum


class Reason(StrEnum):
    MANUAL = "manual"
    BACKPRESSURE = "backpressure"
    CALLBACK_BACKLOG = "callback_backlog"
    CREDIT = "credit"
    AUTH = "auth"
    DROP_RATE = "drop_rate"
    BREAKER = "breaker"
    SUCCESS_LIMIT = "success_limit"
    JOURNAL = "journal"
    STOPPED = "stopped"
    DRAINING = "draining"


#: What an operator's resume clears.
RESUMABLE = (Reason.MANUAL, Reason.CREDIT, Reason.AUTH, Reason.DROP_RATE, Reason.SUCCESS_LIMIT)


@dataclass(frozen=True, slots=True)
class Hold:
    reason: Reason
    since: float  # wall time, for people
    by: str
    detail: str
    releases: str
    until: float | None = None  # monotonic; None = not by time

    def as_dict(self) -> dict[str, object]:
        return {
            "reason": str(self.reason),
            "since": round(self.since, 3),
            "by": self.by,
            "detail": self.detail,
            "releases": self.releases,
        }


class Gate:
    def __init__(self, stage: str, slots: int) -> None:
        self.stage = stage
        self.slots = slots
        self.holds: dict[Reason, Hold] = {}
        self.epoch = 0  # how often it has opened: whoever waited through a hold starts spread out
        self.on_change: Callable[[], None] = lambda: None

    @property
    def is_open(self) -> bool:
        return not self.holds

    def hold(self, hold: Hold) -> bool:
        """True if this reason was not holding before. One that was keeps its beginning."""
        standing = self.holds.get(hold.reason)
        self.holds[hold.reason] = hold if standing is None else replace(hold, since=standing.since)
        return standing is None

    def release(self, reason: Reason) -> Hold | None:
        """The hold that ended, or None if there was none."""
        ended = self.holds.pop(reason, None)
        if ended is not None and self.is_open:
            self.epoch += 1
            self.on_change()
        return ended

    def redate(self, step: float) -> None:
        """The clock by which the holds are dated was off by so much."""
        self.holds = {reason: replace(hold, since=hold.since + step) for reason, hold in self.holds.items()}

    def set_slots(self, slots: int) -> None:
        grew = slots > self.slots
        self.slots = slots
        if grew and self.is_open:
            self.on_change()
