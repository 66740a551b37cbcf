"""A ticket, what an answer to it means, and how it can end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Verdict(StrEnum):
    """What one call to the outside meant."""

    ANSWERED = "answered"  # a result
    OFFLINE = "offline"  # the product is gone: a result too
    PROCESSING = "processing"  # not ready yet: ask again soon
    PROVIDER_ERROR = "provider_error"  # the provider's own failure, said politely
    CREDIT = "credit"  # the account is empty
    AUTH = "auth"  # our credentials are refused
    FAULT = "fault"  # no usable answer at all
    REJECTED = "rejected"  # understood and refused for good

    @property
    def is_result(self) -> bool:
        return self in _RESULTS

    @property
    def is_fault(self) -> bool:
        return self in _FAULTS


_RESULTS = frozenset({Verdict.ANSWERED, Verdict.OFFLINE})
_FAULTS = frozenset({Verdict.FAULT, Verdict.PROVIDER_ERROR})


class Outcome(StrEnum):
    """How a ticket ended. Exactly one per ticket."""

    DELIVERED = "delivered"
    REJECTED = "rejected"  # upstream refused the callback for good
    DUPLICATE = "duplicates"  # done before, or the same trace twice
    PULL_EXPIRED = "pull_expired"  # L1: too old when handed out
    QUEUE_EXPIRED = "queue_expired"  # too old while waiting
    QUERY_STALE = "query_stale"  # L2, or could not have been delivered in time
    QUERY_EXPIRED = "query_expired"  # L3: too old to ask again
    CALLBACK_EXPIRED = "callback_expired"  # L4: too old to call back
    RETRY_EXPIRED = "retry_expired"  # L5: too old while waiting to call back again
    RETRY_EXHAUSTED = "retry_exhausted"  # L5: all retries used
    CREDIT_EXPIRED = "credit_expired"  # its time ran out while the credit hold stood
    AUTH_EXPIRED = "auth_expired"  # its time ran out while the auth hold stood
    OVERFLOW = "overflow"  # upstream handed out more than was asked for and there was no room
    MALFORMED = "malformed"  # upstream's entry was not a ticket
    RESTART = "restart"  # of an earlier run of this program, and too old when the next began
    CRASHED = "crashed"  # a bug of ours, more than once on the same ticket


#: In the payload of a ticket that the simulated world handed out: it must never reach a real end.
SIMULATED = "simulated"

#: Time ran out on our side: what the drop rate is made of.
LATE = frozenset(
    {
        Outcome.QUEUE_EXPIRED,
        Outcome.QUERY_STALE,
        Outcome.QUERY_EXPIRED,
        Outcome.CALLBACK_EXPIRED,
        Outcome.RETRY_EXPIRED,
        Outcome.RETRY_EXHAUSTED,
    }
)

#: Lost, but not because we were slow: counted by name, not in the drop rate.
LOST_OTHERWISE = frozenset(
    {
        Outcome.CREDIT_EXPIRED,
        Outcome.AUTH_EXPIRED,
        Outcome.OVERFLOW,
        Outcome.MALFORMED,
        Outcome.RESTART,
        Outcome.CRASHED,
    }
)

DROPPED = LATE | LOST_OTHERWISE


@dataclass(frozen=True, slots=True)
class Answer:
    """What a provider said. `body` is the result as JSON text, kept as bytes all the way through."""

    verdict: Verdict
    body: bytes = field(default=b"", repr=False)
    detail: str = ""
    retry_after: float | None = None
    throttled: bool = False
    maybe_paid: bool = False
    trouble: str = ""  # `CallFailed.trouble`


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a sink said to one callback: ANSWERED is delivered, REJECTED is final, FAULT is tried again."""

    verdict: Verdict
    detail: str = ""
    retry_after: float | None = None
    trouble: str = ""  # `CallFailed.trouble`


class Stored(Protocol):
    """An answer's place on disk."""

    @property
    def size(self) -> int: ...

    @property
    def claims(self) -> int:
        """How many tickets need it."""
        ...

    def let_go(self) -> bool:
        """Give the memory back; False while the disk does not have it yet."""
        ...


@dataclass(slots=True, eq=False)
class Ticket:
    key: str  # what is deduplicated: shop_id:item_id:country
    trace_id: str
    stamp: float | None  # when upstream says it was made; None if it did not say
    payload: Mapping[str, Any] = field(default_factory=dict, repr=False)
    token: str = field(default="", repr=False)
    priority: int = 0
    created: float = 0.0  # the stamp where it can be believed, else the moment of the pull
    queries: int = 0
    faults: int = 0
    callbacks: int = 0
    crashes: int = 0
    outcome: Outcome | None = None
    answer: Answer | None = field(default=None, repr=False)
    kept: Stored | None = field(default=None, repr=False)  # its answer's place on disk
    followers: list[Ticket] = field(default_factory=list, repr=False)

    def age(self, now: float) -> float:
        return now - self.created

    def redate(self, step: float) -> None:
        """Our clock was off by `step` seconds: a date of ours moves along, upstream's own stays.

        A stamp that looked unborn is upstream's date again, if it no longer does.
        """
        if self.created != self.stamp:
            pulled = self.created + step
            self.created = pulled if self.stamp is None else min(self.stamp, pulled)

    @property
    def party(self) -> int:
        """This ticket and those that joined it."""
        return 1 + len(self.followers)
