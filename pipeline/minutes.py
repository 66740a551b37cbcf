"""What one minute of a lane was like, for charts and reports that survive a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_RATED = ("pull", "query", "callback")

Sections = dict[str, dict[str, float]]


class Minutes:
    """Adds up from one `begin_anew` to the next; counters are remembered so that only what is new is told."""

    def __init__(self) -> None:
        self._counted: Mapping[str, int] = {}
        self._held: dict[str, float] = {}
        self._events: dict[str, float] = {}
        self._spent = 0.0

    def held(self, reasons: Iterable[str], seconds: float) -> None:
        """These holds stood for that long; one that stands on two stages is one hold."""
        for reason in set(reasons):
            self._held[reason] = self._held.get(reason, 0.0) + seconds

    def happened(self, kind: str) -> None:
        self._events[kind] = self._events.get(kind, 0.0) + 1

    def so_far(self, status: Mapping[str, Any]) -> Sections:
        """The minute that is under way."""
        counters: Mapping[str, int] = status["counters"]
        spent = float(status["credits"]["spent"])
        new = {name: float(value - self._counted.get(name, 0)) for name, value in counters.items()}
        return {
            "counters": {name: value for name, value in new.items() if value}
            | {"spent": spent - self._spent},
            "holds": {reason: round(seconds, 1) for reason, seconds in self._held.items()},
            "events": dict(self._events),
            "latencies": _latencies(status["stages"]),
            "gauges": _gauges(status),
        }

    def begin_anew(self, status: Mapping[str, Any]) -> None:
        self._counted, self._spent = dict(status["counters"]), float(status["credits"]["spent"])
        self._held, self._events = {}, {}


def _latencies(stages: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{stage}_{name}": value
        for stage in _RATED
        for name, value in stages[stage]["latency"].items()
        if value is not None
    }


def _gauges(status: Mapping[str, Any]) -> dict[str, float]:
    queue, callbacks = status["queue"], status["callbacks"]
    rates = {f"{stage}_per_min": float(status["stages"][stage]["rate_per_min"]) for stage in _RATED}
    return rates | {
        "depth": float(queue["pending"] + queue["delayed"]),
        "backlog": float(callbacks["pending"] + callbacks["retrying"]),
        "backlog_bytes": float(callbacks["bytes"]),
        "drop_rate": float(status["drop_rate"]["rate"]),
    }
