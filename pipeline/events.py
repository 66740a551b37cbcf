"""What happened, said once: log, panel and alerts all hear the same event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

RECENT_MAX = 1000


class Kind(StrEnum):
    STARTED = "started"
    STOPPED = "stopped"
    DRAINING = "draining"
    HOLD = "hold"  # detail: reason, by, detail, releases
    RELEASE = "release"  # detail: reason, by, lasted
    BREAKER = "breaker"  # detail: before, after, why, pause; fault, if faults were the cause
    DROP_RATE = "drop_rate"  # detail: before, after, rate, delivered, dropped
    CLOCK_SKEW = "clock_skew"  # detail: offset, likely, why
    OVERFLOW = "overflow"  # detail: count
    WORKER_CRASHED = "worker_crashed"  # detail: error
    CONFIG = "config"  # detail: changed, needs_restart, error
    ALERT = "alert"  # detail: channel, error
    TLS = "tls"  # a certificate was refused. detail: error
    TOO_LARGE = "too_large"  # a body over the limit was cut off. detail: error
    DESCRIPTORS = "descriptors"  # no connection can be opened. detail: error
    JOURNAL = "journal"  # detail: what, and why, file, lasted or count
    LOOP_LAG = "loop_lag"  # detail: seconds


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    lane: str
    kind: Kind
    level: Level = Level.INFO
    stage: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "at": round(self.at, 3),
            "lane": self.lane,
            "kind": str(self.kind),
            "level": str(self.level),
            "stage": self.stage,
            "detail": dict(self.detail),
        }


Listener = Callable[[Event], None]


class Bus:
    """Synchronous: a listener that has work to do puts it on a queue of its own."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._recent: deque[Event] = deque(maxlen=RECENT_MAX)
        self._seq = 0

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def publish(self, event: Event) -> None:
        self._seq += 1
        numbered = Event(event.at, event.lane, event.kind, event.level, event.stage, event.detail, self._seq)
        self._recent.append(numbered)
        for listener in tuple(self._listeners):
            listener(numbered)

    def recent(self, limit: int = 100, lane: str | None = None) -> list[Event]:
        """Newest first."""
        chosen = (event for event in reversed(self._recent) if lane is None or event.lane == lane)
        return list(islice(chosen, limit))


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to one ticket. Far too many for the bus: stages keep the latest few."""

    at: float
    lane: str
    stage: str  # pull, query or callback
    trace_id: str
    key: str
    what: str  # a Verdict, an Outcome, "queued" or "joined"
    age: float
    attempt: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "at": round(self.at, 3),
            "lane": self.lane,
            "stage": self.stage,
            "trace_id": self.trace_id,
            "key": self.key,
            "what": self.what,
            "age": round(self.age, 1),
            "attempt": self.attempt,
        }


StepListener = Callable[[Step], None]
