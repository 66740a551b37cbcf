"""What a changed configuration changes at once, and what only a restart can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from pipeline.config import Settings

#: The thresholds and ages that the control reads anew at every decision.
_LIVE_SECTIONS = ("breaker", "drop_rate", "retry")
_LIVE_KEYS = {
    "pull": {"interval", "max_age", "timeout"},
    "queue": {"high_water", "low_water", "max_age"},
    "query": {"batch", "degraded_batch", "severe_batch", "stale_age", "max_age", "timeout"},
    "callback": {
        "batch",
        "degraded_batch",
        "severe_batch",
        "retries",
        "retry_interval",
        "max_age",
        "timeout",
        "backlog_bytes",
        "backlog_count",
        "success_limit",
    },
}


def changes_between(before: Settings, after: Settings) -> tuple[list[str], list[str]]:
    """Names of changed keys: those that apply at once, and those that need a restart."""
    changed = sorted(_differences(before, after, ""))
    live = [key for key in changed if is_live(key)]
    return live, [key for key in changed if key not in live]


def is_live(key: str) -> bool:
    match key.split("."):
        case ["daemon", "log_level" | "log_format" | "drain_timeout"]:
            return True
        case ["lanes", _, section, *_] if section in _LIVE_SECTIONS:
            return True
        case ["lanes", _, section, name]:
            return name in _LIVE_KEYS.get(section, ())
    return False


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, BaseModel) and type(before) is type(after):
        for name in type(before).model_fields:
            yield from _differences(getattr(before, name), getattr(after, name), _join(path, name))
    elif isinstance(before, dict) and isinstance(after, dict):
        for name in before.keys() | after.keys():
            yield from _differences(before.get(name), after.get(name), _join(path, name))
    elif before != after:
        yield path


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
