"""Reading `created_at` in all the shapes upstreams write it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

#: Above this a number can only be milliseconds (in seconds it would be the year 5138).
_MILLISECONDS_FROM = 100_000_000_000
_EARLIEST = 946_684_800  # 2000-01-01: anything before is not a date of a ticket
_LATEST = 1e18


def read_created(value: Any, zone: ZoneInfo) -> float | None:
    """Epoch seconds, or None where it cannot be read."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _from_number(value)
    if isinstance(value, str):
        return _from_text(value.strip(), zone)
    return None


def _from_number(number: float) -> float | None:
    if not number < _LATEST:  # nor is "nan"
        return None
    seconds = number / 1000 if number >= _MILLISECONDS_FROM else float(number)
    return seconds if seconds >= _EARLIEST else None


def _from_text(text: str, zone: ZoneInfo) -> float | None:
    if not text or len(text) > 64:
        return None
    try:
        return _from_number(float(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        return _from_number(moment.timestamp())
    except (ValueError, OverflowError):
        return None
