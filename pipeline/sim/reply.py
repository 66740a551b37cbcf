"""What the world decides about one call, and the call itself while it is open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

from pipeline.ticket import Verdict


class Break(StrEnum):
    """How an answer fails on the wire."""

    HANG = "hang"  # never comes
    RESET = "reset"  # connection reset before a byte of it
    TRUNCATE = "truncate"  # connection closed in mid-body
    SLOW = "slow"  # one byte a second


@dataclass(frozen=True, slots=True)
class Reply:
    """`verdict` is what CONTRACT 1 makes of status and body, for fronts that have no wire."""

    delay: float
    status: int
    verdict: Verdict
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    broken: Break | None = None
    detail: str = ""

    @property
    def retry_after(self) -> float | None:
        try:
            return float(self.headers["Retry-After"])
        except (KeyError, ValueError):
            return None


def _nothing() -> None: ...


class Call:
    """One open call. A front enters it, waits `reply.delay`, calls `happen()` and sends the reply.

    What the call does (hand out, charge, accept) is done in `happen()`, not when the call is made: a client
    that hangs up before that has changed nothing.
    """

    __slots__ = ("_begin", "_effect", "_end", "reply")

    def __init__(
        self,
        reply: Reply,
        effect: Callable[[], None] = _nothing,
        begin: Callable[[], None] = _nothing,
        end: Callable[[], None] = _nothing,
    ) -> None:
        self.reply = reply
        self._effect = effect
        self._begin = begin
        self._end = end

    def __enter__(self) -> Call:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def happen(self) -> None:
        effect, self._effect = self._effect, _nothing
        effect()
