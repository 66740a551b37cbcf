"""The last five minutes, one row a second, for a panel that has just been opened."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from pipeline.ticket import DROPPED

HISTORY_MAX = 300
#: Named once; a row is a bare list in this order.
FIELDS = (
    "state",
    "pulled",
    "queried",
    "delivered",
    "rejected",
    "dropped",
    "pull_expired",
    "malformed",
    "pull_per_min",
    "query_per_min",
    "callback_per_min",
    "queued",
    "in_flight",
    "callbacks_pending",
    "callbacks_retrying",
    "drop_rate",
    "query_p50",
    "query_p95",
    "query_p99",
)

_DROPPED_NAMES = tuple(sorted(DROPPED))


class History:
    def __init__(self) -> None:
        self._points: deque[tuple[float, dict[str, tuple[Any, ...]]]] = deque(maxlen=HISTORY_MAX)

    def add(self, status: Mapping[str, Any]) -> None:
        rows = {name: _row(lane) for name, lane in status["lanes"].items()}
        self._points.append((status["now"], rows))

    def as_dict(self) -> dict[str, Any]:
        """Oldest first."""
        return {
            "fields": FIELDS,
            "points": [{"now": now, "lanes": rows} for now, rows in self._points],
        }


def _row(lane: Mapping[str, Any]) -> tuple[Any, ...]:
    counters, stages, queue = lane["counters"], lane["stages"], lane["queue"]
    return (
        lane["state"],
        counters["pulled"],
        counters["queried"],
        counters["delivered"],
        counters["rejected"],
        sum(counters.get(name, 0) for name in _DROPPED_NAMES),
        counters["pull_expired"],
        counters.get("malformed", 0),
        stages["pull"]["rate_per_min"],
        stages["query"]["rate_per_min"],
        stages["callback"]["rate_per_min"],
        queue["pending"] + queue["delayed"],
        queue["in_flight"],
        lane["callbacks"]["pending"],
        lane["callbacks"]["retrying"],
        lane["drop_rate"]["rate"],
        *(stages["query"]["latency"][name] for name in ("p50", "p95", "p99")),
    )
