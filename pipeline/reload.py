"""What a changed configuration changes at once, and what only a restart can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from pipeline.config import Settings
from pipeline.errors import ConfigError
from pipeline.loading import one_line

#: Thresholds and ages, which the control reads anew at every decision. Pool sizes, windows, addresses and
#: secrets are built into what runs.
_LIVE_KEYS = {
    "pull": {"interval", "max_age", "timeout", "degraded_batch", "severe_batch"},
    "queue": {"high_water", "low_water", "max_age", "joined_max"},
    "query": {"degraded_batch", "severe_batch", "stale_age", "max_age", "timeout"},
    "callback": {
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
    "breaker": {
        "min_samples",
        "degrade_at",
        "recover_below",
        "trip_after",
        "pause",
        "pause_max",
        "trials",
        "slow_after",
    },
    "drop_rate": {"min_total", "degrade", "trip", "stop"},
    "retry": {"share", "per_second", "delay", "delay_max"},
}


@dataclass(frozen=True, slots=True)
class Reloaded:
    settings: Settings  # what is in force from now on
    changed: list[str]
    needs_restart: list[str]


def reloaded(running: Settings, wanted: Settings) -> Reloaded:
    """Raises ConfigError when the live part of `wanted` contradicts what only a restart can change."""
    changes = sorted(_differences(running, wanted, ""))
    try:
        settings = _with_live_changes(running, wanted, "")
    except ValidationError as error:
        raise ConfigError(f"not without a restart: {one_line(error)}") from None
    live = [key for key in changes if is_live(key)]
    return Reloaded(settings, live, [key for key in changes if not is_live(key)])


def is_live(key: str) -> bool:
    match key.split("."):
        case ["daemon", "log_level" | "log_format" | "drain_timeout"] | ["journal", "keep_days"]:
            return True
        case ["lanes", _, section, name]:
            return name in _LIVE_KEYS.get(section, ())
    return False


def _with_live_changes(running: Any, wanted: Any, path: str) -> Any:
    if isinstance(running, BaseModel) and type(running) is type(wanted):
        values = {
            name: _with_live_changes(getattr(running, name), getattr(wanted, name), _join(path, name))
            for name in type(running).model_fields
        }
        return type(running)(**values)
    if isinstance(running, dict) and isinstance(wanted, dict):
        return {
            name: _with_live_changes(value, wanted.get(name), _join(path, name))
            for name, value in running.items()
        }
    return wanted if is_live(path) else running


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
