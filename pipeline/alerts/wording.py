"""Which events are worth a message, and what it says.

Most causes come in pairs, an edge in and an edge out; `once` causes have no end to report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pipeline.events import Event, Kind
from pipeline.logs import redact
from pipeline.texts import Texts

TEXT_BYTES_MAX = 2048
DETAIL_CHARS_MAX = 300

#: Holds that people must hear of. An operator's own pause is no news to the operator.
HOLDS = frozenset({"backpressure", "drop_rate", "credit", "auth", "callback_backlog", "journal"})
#: The hard stop: nothing moves until somebody comes.
JOURNAL_LOSSES = frozenset({"set_aside", "gone", "log_damaged", "rows_lost", "unclaimed"})
URGENT = frozenset({"drop_rate"})
#: Two stages may be in such trouble at once, and each is news.
OF_A_STAGE = frozenset({"breaker", "tls", "too_large", "descriptors"})


class Edge(StrEnum):
    FIRE = "fire"
    RECOVER = "recover"
    ONCE = "once"


@dataclass(frozen=True, slots=True)
class Alert:
    key: str  # what the two edges of one trouble share
    edge: Edge
    title: str  # its name in a digest
    text: str
    urgent: bool = False


def cut(text: str, limit: int = TEXT_BYTES_MAX) -> str:
    """At most `limit` bytes of UTF-8, never half a character."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode()
    return data[: limit - len("…".encode())].decode("utf-8", "ignore") + "…"


class Wording:
    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._readers: Mapping[Kind, Callable[[Event], Alert | None]] = {
            Kind.HOLD: self._hold,
            Kind.RELEASE: self._release,
            Kind.BREAKER: self._breaker,
            Kind.CLOCK_SKEW: self._clock_skew,
            Kind.TLS: self._trouble,
            Kind.TOO_LARGE: self._trouble,
            Kind.DESCRIPTORS: self._trouble,
            Kind.OVERFLOW: self._overflow,
            Kind.STARTED: self._started,
            Kind.JOURNAL: self._journal,
        }

    def read(self, event: Event) -> Alert | None:
        reader = self._readers.get(event.kind)
        return reader(event) if reader else None

    def _hold(self, event: Event) -> Alert | None:
        reason = str(event.detail.get("reason", ""))
        if reason not in HOLDS:
            return None
        return self._alert(event, reason, Edge.FIRE, _numbers(event.detail), urgent=reason in URGENT)

    def _release(self, event: Event) -> Alert | None:
        reason = str(event.detail.get("reason", ""))
        if reason not in HOLDS:
            return None
        # The end of a hard stop shares its lane of the queue, or it could be overtaken by the next one.
        return self._alert(event, reason, Edge.RECOVER, {}, urgent=reason in URGENT)

    def _breaker(self, event: Event) -> Alert | None:
        after = event.detail.get("after")
        values = {"stage": self._stage(event.stage), "pause": _number(event.detail.get("pause"))}
        if after == "open":
            return self._alert(event, "breaker", Edge.FIRE, values)
        if after in {"normal", "degraded"}:
            return self._alert(event, "breaker", Edge.RECOVER, values)
        return None  # half_open decides nothing yet

    def _clock_skew(self, event: Event) -> Alert | None:
        offset = _float(event.detail.get("offset"))
        likely = self._texts.retold("detail", str(event.detail.get("likely") or "?"))
        edge = Edge.FIRE if offset else Edge.RECOVER
        values = {"offset": self._texts.duration(abs(offset)), "likely": likely}
        return self._alert(event, "clock_skew", edge, values)

    def _trouble(self, event: Event) -> Alert | None:
        error = str(event.detail.get("error", "?"))[:DETAIL_CHARS_MAX]
        values = {"stage": self._stage(event.stage), "error": error}
        return self._alert(event, str(event.kind), Edge.ONCE, values)

    def _overflow(self, event: Event) -> Alert | None:
        return self._alert(event, "overflow", Edge.ONCE, {"count": _number(event.detail.get("count"))})

    def _journal(self, event: Event) -> Alert | None:
        """What the hold does not say: rows or a file that are gone."""
        what = str(event.detail.get("what", ""))
        if what not in JOURNAL_LOSSES:
            return None
        return self._alert(event, f"journal_{what}", Edge.ONCE, {"count": _number(event.detail.get("count"))})

    def _started(self, event: Event) -> Alert | None:
        if not event.detail.get("unclean"):
            return None
        counts = ("recovered", "undelivered", "maybe_paid", "dropped")
        return self._alert(
            event, "restart", Edge.ONCE, {name: _number(event.detail.get(name, 0)) for name in counts}
        )

    def _alert(
        self, event: Event, cause: str, edge: Edge, values: Mapping[str, object], urgent: bool = False
    ) -> Alert:
        moment = "recover" if edge is Edge.RECOVER else "fire"
        lines = [self._texts.say(f"alert.{cause}.{moment}", **values), *self._footer(event, edge)]
        stage = self._stage(event.stage) if cause in OF_A_STAGE else ""
        title = self._texts.say(f"alert.{cause}.title", stage=stage, lane=event.lane)
        key = "/".join((event.lane, cause, event.stage if cause in OF_A_STAGE else ""))
        return Alert(key, edge, redact(title), cut(redact("\n".join(lines))), urgent)

    def _footer(self, event: Event, edge: Edge) -> list[str]:
        lines = []
        why = str(event.detail.get("why") or event.detail.get("detail") or "")
        if edge is not Edge.RECOVER and why:
            told = self._texts.retold("detail", why)[:DETAIL_CHARS_MAX]
            lines.append(self._texts.say("alert.detail", detail=told))
        if edge is not Edge.RECOVER and event.detail.get("fault"):
            fault = str(event.detail["fault"])[:DETAIL_CHARS_MAX]
            lines.append(self._texts.say("alert.fault", fault=fault))
        if edge is Edge.RECOVER and event.detail.get("lasted") is not None:
            lasted = self._texts.duration(_float(event.detail["lasted"]))
            lines.append(self._texts.say("alert.lasted", lasted=lasted))
        if event.lane:
            lines.append(self._texts.say("alert.lane", lane=event.lane))
        return lines

    def _stage(self, stage: str) -> str:
        return self._texts.name("stage", stage)


def _numbers(detail: Mapping[str, Any]) -> dict[str, object]:
    """All that a hold's text may name. What the event did not say is shown as a question mark."""
    counts = ("depth", "high_water", "low_water", "delivered", "dropped", "count", "bytes")
    values: dict[str, object] = {name: _number(detail.get(name)) for name in counts}
    for share in ("rate", "threshold"):
        values[share] = _percent(detail.get(share))
    return values


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "?"
    return f"{value:.1f}".removesuffix(".0")


def _percent(share: object) -> str:
    return _number(share * 100) if isinstance(share, int | float) else "?"


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
