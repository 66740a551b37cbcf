"""An event in one line, in the reader's words; one of a kind that this program does not know, as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipeline.cli.status import as_float, local, part, percent
from pipeline.cli.table import clean, pad
from pipeline.texts import Texts

NOTHING = "-"
LEVEL_WIDTH = 7
#: Events that tell of a change, and the group of words that names its ends.
CHANGES = {"breaker": "mode", "drop_rate": "level"}
#: What a sentence may ask for; an older daemon may not have said it.
ASKED_FOR = (
    "after",
    "before",
    "changed",
    "channel",
    "count",
    "dropped",
    "error",
    "in_flight",
    "lasted",
    "likely",
    "maybe_paid",
    "offset",
    "rate",
    "reason",
    "recovered",
    "seconds",
    "undelivered",
    "waiting",
    "what",
    "where",
    "why",
)

Detail = Mapping[str, Any]


def render_event(event: Mapping[str, Any], texts: Texts) -> str:
    detail = part(event, "detail")
    stages = [texts.name("stage", stage) for stage in str(event.get("stage") or "").split(",") if stage]
    where = "/".join(filter(None, [str(event.get("lane") or ""), ",".join(stages)]))
    cells = [
        local(as_float(event.get("at"))).strftime("%Y-%m-%d %H:%M:%S"),
        pad(clean(texts.name("panel.events", event.get("level", ""))), LEVEL_WIDTH),
        clean(where),
        clean(_sentence(str(event.get("kind", "")), detail, texts)),
        clean(_remark(str(event.get("kind", "")), detail, texts)),
    ]
    return "  ".join(cell for cell in cells if cell).rstrip()


def _sentence(kind: str, detail: Detail, texts: Texts) -> str:
    if kind in _TELLERS:
        return _TELLERS[kind](detail, texts)
    if f"event.{kind}" not in texts:
        told = (f"{name}={_listed(value)}" for name, value in detail.items() if value != "")
        return " ".join([kind, *told])
    group = CHANGES.get(kind)
    ends = {name: texts.name(group, detail.get(name)) for name in ("before", "after")} if group else {}
    words = {
        "reason": texts.name("reason", detail.get("reason", "")),
        "what": texts.name("journal", detail.get("what", "")),
        "lasted": texts.duration(as_float(detail.get("lasted"))),
        "rate": percent(detail.get("rate")),
    }
    return _say(texts, f"event.{kind}", detail, ends | words)


def _clock_skew(detail: Detail, texts: Texts) -> str:
    offset = as_float(detail.get("offset"))
    likely = texts.retold("detail", str(detail.get("likely", "")))
    said = {"offset": texts.duration(abs(offset)), "likely": likely}
    return _say(texts, "event.clock_skew" if offset else "event.clock_skew_over", detail, said)


def _config(detail: Detail, texts: Texts) -> str:
    if detail.get("error"):
        return _say(texts, "event.config_refused", detail)
    changed, waiting = detail.get("changed") or (), detail.get("needs_restart") or ()
    said = []
    if changed or not waiting:
        said.append(_say(texts, "event.config", {"changed": _listed(changed)}))
    if waiting:
        said.append(_say(texts, "event.config_restart", {"waiting": _listed(waiting)}))
    return " · ".join(said)


def _started(detail: Detail, texts: Texts) -> str:
    return _say(texts, "event.started_unclean" if detail.get("unclean") else "event.started", detail)


#: Events that are told in one of several ways.
_TELLERS: Mapping[str, Callable[[Detail, Texts], str]] = {
    "clock_skew": _clock_skew,
    "config": _config,
    "started": _started,
}


def _say(texts: Texts, key: str, detail: Detail, words: Mapping[str, str] | None = None) -> str:
    known = {name: detail.get(name, "") for name in ASKED_FOR}
    return texts.say(key, **known | dict(words or {}))


def _remark(kind: str, detail: Detail, texts: Texts) -> str:
    """Why, and by whom. What an operator typed is his own; the rest is the daemon's and can be retold."""
    if f"event.{kind}" not in texts:
        return ""
    own = detail.get("reason") == "manual"
    whys = [] if kind == "journal" else [str(detail[name]) for name in ("detail", "why") if detail.get(name)]
    said = whys if own else [texts.retold("detail", why) for why in whys]
    return " · ".join([*said, *([texts.who(str(detail["by"]))] if detail.get("by") else [])])


def _listed(value: object) -> str:
    return (", ".join(map(str, value)) or NOTHING) if isinstance(value, list | tuple) else str(value)
