"""The status as text. Reads leniently: an older or newer daemon may leave a field out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pipeline.cli.table import clean, pad, table, width
from pipeline.texts import Texts

NONE = "-"
STAGES = ("pull", "query", "callback")


def render_status(status: Mapping[str, Any], texts: Texts) -> str:
    uptime = texts.duration(as_float(status.get("uptime")))
    lines = [texts.say("cli.status.title", version=clean(status.get("version", NONE)), uptime=uptime)]
    for name, lane in part(status, "lanes").items():
        lines += ["", f"{clean(name)}  {texts.name('state', clean(lane.get('state', NONE)))}"]
        lines += _stages(lane, texts)
        lines += _holds(lane, texts, as_float(status.get("now")))
        lines += _facts(lane, texts)
    return "\n".join(lines)


def _stages(lane: Mapping[str, Any], texts: Texts) -> list[str]:
    columns = ("stage", "mode", "slots", "busy", "rate", "faults", "p50", "p95")
    rows: list[list[object]] = [[texts.say(f"cli.status.{column}") for column in columns]]
    for name in STAGES:
        stage = part(lane, "stages").get(name)
        if stage is None:
            continue
        latency = part(stage, "latency")
        rows.append(
            [
                texts.name("stage", name),
                texts.name("mode", stage.get("mode", NONE)),
                _count(stage.get("slots")),
                _count(stage.get("busy")),
                _count(stage.get("rate_per_min")),
                percent(part(stage, "window").get("fault_rate")),
                _seconds(latency.get("p50")),
                _seconds(latency.get("p95")),
            ]
        )
    return table(rows) if len(rows) > 1 else []


def _holds(lane: Mapping[str, Any], texts: Texts, now: float) -> list[str]:
    columns = ("stage", "hold", "since", "by", "releases")
    rows: list[list[object]] = [[texts.say(f"cli.status.{column}") for column in columns]]
    for stage, holds in part(lane, "holds").items():
        rows += [
            [
                texts.name("stage", stage),
                _why(hold, texts),
                _moment(hold.get("since"), now, texts),
                texts.who(str(hold.get("by") or NONE)),
                texts.retold("releases", str(hold.get("releases") or NONE)),
            ]
            for hold in holds or ()
        ]
    return ["", *table(rows)] if len(rows) > 1 else []


def _why(hold: Mapping[str, Any], texts: Texts) -> str:
    """What an operator typed is his own; the rest is the daemon's and can be retold."""
    reason, detail = hold.get("reason", NONE), str(hold.get("detail") or "")
    said = detail if reason == "manual" else texts.retold("detail", detail)
    return f"{texts.name('reason', reason)}: {said}" if said else texts.name("reason", reason)


def _facts(lane: Mapping[str, Any], texts: Texts) -> list[str]:
    facts = [
        ("last_fault", _last_faults(part(lane, "stages"), texts)),
        ("totals", _totals(lane, texts)),
        ("queue", _queue(part(lane, "queue"), texts)),
        ("callbacks", _callbacks(part(lane, "callbacks"), texts)),
        ("drop_rate", _drop_rate(part(lane, "drop_rate"), texts)),
        ("conservation", _conservation(part(lane, "conservation"), texts)),
        ("credits", _credits(part(lane, "credits"), texts)),
    ]
    named = [(texts.say(f"cli.status.{name}"), text) for name, text in facts if text]
    widest = max((width(name) for name, _ in named), default=0)
    return ["", *(f"  {pad(name, widest)}  {clean(text)}" for name, text in named)] if named else []


def _last_faults(stages: Mapping[str, Any], texts: Texts) -> str:
    """Why calls fail is the first thing to ask when they do."""
    said = []
    for name in STAGES:
        fault = part(part(stages, name), "last_fault")
        if fault.get("why"):
            ago = texts.duration(as_float(fault.get("ago")))
            stage = texts.name("stage", name)
            said.append(texts.say("cli.status.last_fault_line", stage=stage, why=fault["why"], ago=ago))
    return ", ".join(said)


def _totals(lane: Mapping[str, Any], texts: Texts) -> str:
    """Since the start; the drop rate's own numbers begin afresh with each resume."""
    counters = part(lane, "counters")
    if not counters:
        return ""
    names = ("pulled", "delivered", "rejected", "duplicates", "pull_expired")
    values = {name: _count(counters.get(name)) for name in names}
    dropped = sum(count for count in part(lane, "dropped").values() if isinstance(count, int))
    return texts.say("cli.status.totals_line", **values, dropped=dropped)


def _queue(queue: Mapping[str, Any], texts: Texts) -> str:
    if not queue:
        return ""
    names = ("pending", "delayed", "in_flight", "high_water", "low_water")
    values = {name: _count(queue.get(name)) for name in names}
    return texts.say("cli.status.queue_line", **values, oldest_age=_seconds(queue.get("oldest_age")))


def _callbacks(callbacks: Mapping[str, Any], texts: Texts) -> str:
    if not callbacks:
        return ""
    values = {name: _count(callbacks.get(name)) for name in ("pending", "retrying")}
    return texts.say("cli.status.callbacks_line", **values, bytes=size(callbacks.get("bytes")))


def _drop_rate(drop: Mapping[str, Any], texts: Texts) -> str:
    if not drop:
        return ""
    values = {name: _count(drop.get(name)) for name in ("delivered", "dropped")}
    level = texts.name("level", drop.get("level", NONE))
    return texts.say("cli.status.drop_rate_line", rate=percent(drop.get("rate")), level=level, **values)


def _conservation(sums: Mapping[str, Any], texts: Texts) -> str:
    if not sums:
        return ""
    values = {name: _count(sums.get(name)) for name in ("pulled", "accounted")}
    return texts.say(f"cli.status.{'balanced' if sums.get('balanced') else 'unbalanced'}", **values)


def _credits(credits: Mapping[str, Any], texts: Texts) -> str:
    names = ("balance", "spent", "per_delivery", "hours_left")
    if not any(credits.get(name) is not None for name in names):
        return ""
    return texts.say("cli.status.credits_line", **{name: _count(credits.get(name)) for name in names})


def part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}


def as_float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _count(value: object) -> str:
    if not isinstance(value, int | float):
        return NONE
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def percent(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else NONE


def _seconds(value: object) -> str:
    return f"{value:.2f}s" if isinstance(value, int | float) else NONE


def size(value: object) -> str:
    return f"{as_float(value) / (1 << 20):.1f} MB"


def local(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC).astimezone()


def _moment(since: object, now: float, texts: Texts) -> str:
    if not isinstance(since, int | float):
        return NONE
    return f"{local(since):%H:%M:%S} ({texts.duration(max(0.0, now - since))})"
