"""How the outside behaves: values only, checked, changed as a whole.

A change is written as a mapping, nested like the dataclasses: `{"rate": 50, "query": {"error": 0.5}}`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from pipeline.errors import ConfigError

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Size = Annotated[int, msgspec.Meta(ge=400, le=32 << 20)]
Stamp = Literal["local", "utc_wrong_zone", "epoch", "epoch_ms", "iso"]


@dataclass(frozen=True, slots=True)
class End:
    """One of the three ends. The shares are of its calls; the first whose turn it is wins, in this order."""

    latency: Seconds = 0.05  # median; log-normal
    sigma: Annotated[float, msgspec.Meta(ge=0, le=3)] = 0.3
    error: Share = 0.0  # 500, 502 or 503; nothing happened
    hang: Share = 0.0  # takes the request and says nothing
    reset: Share = 0.0  # connection reset; nothing happened
    garbage: Share = 0.0  # 200, but HTML or JSON cut short; nothing happened
    truncate: Share = 0.0  # it happened, but the answer breaks off in mid-body
    slow: Share = 0.0  # it happened, and the answer comes one byte a second


@dataclass(frozen=True, slots=True)
class Behaviour:
    # upstream
    rate: Annotated[float, msgspec.Meta(ge=0, le=100_000)] = 20.0  # new tickets a second, Poisson
    duplicate_share: Share = 0.02  # new trace, key of a recent ticket
    repeat_share: Share = 0.0  # the very same ticket handed out a second time
    age: Seconds = 0.0  # how old a ticket is when it arrives upstream,
    age_spread: Seconds = 0.0  # plus up to this much
    order: Literal["fifo", "lifo"] = "fifo"
    backlog_max: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 5000  # the oldest are forgotten
    pull_cap: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 50
    ignore_limit: bool = False  # hands out `pull_cap` whatever was asked for
    timestamp: Stamp = "local"
    pull_refused: bool = False  # 401 to every pull
    pull: End = End(latency=0.03)
    # provider
    processing_share: Share = 0.4  # of keys whose first query says "being processed"
    processing_time: Seconds = 0.8
    offline_share: Share = 0.03  # of keys
    provider_error_share: Share = 0.0  # of queries
    capacity: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None  # queries a second
    overload: Literal["reject", "queue"] = "reject"
    queue_max: Seconds = 60.0  # a longer wait is answered 503 at once
    retry_after: str = "1"  # the header of a 429, verbatim
    credits: Annotated[float, msgspec.Meta(ge=0)] | None = None  # one per result; None is endless
    auth_refused: bool = False  # 401 to every query
    page_min: Size = 80_000
    page_max: Size = 110_000
    query: End = End(latency=0.4, sigma=0.5)
    # receiver of callbacks, and of alerts
    callback: End = End(latency=0.08)
    wecom_errcode: int = 0


def changed(behaviour: Behaviour, changes: Mapping[str, Any]) -> Behaviour:
    """The behaviour with these changes, or a ConfigError that names the field."""
    merged = dataclasses.asdict(behaviour)
    _merge(merged, changes, "")
    try:
        new = msgspec.convert(merged, Behaviour)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error))) from None
    if new.page_min > new.page_max:
        raise ConfigError(f"page_min: {new.page_min} is above page_max ({new.page_max})")
    return new


def _merge(tree: dict[str, Any], changes: Mapping[str, Any], where: str) -> None:
    if not isinstance(changes, Mapping):
        raise ConfigError(f"{where.rstrip('.') or 'behaviour'}: must be an object of fields")
    for name, value in changes.items():
        if name not in tree:
            raise ConfigError(f"{where}{name}: unknown field; known: {', '.join(sorted(tree))}")
        if isinstance(tree[name], dict):
            _merge(tree[name], value, f"{where}{name}.")
        else:
            tree[name] = value


def _readable(message: str) -> str:
    """msgspec says "Expected `float` <= 1.0 - at `$.query.error`"; the field belongs in front."""
    what, _, where = message.rpartition(" - at `$.")
    return f"{where.rstrip('`')}: {what.lower()}" if what else message
