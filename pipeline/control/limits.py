"""The thresholds that a lane is judged by, for whoever shows how near it is to them."""

from __future__ import annotations

from pipeline.config import LaneConfig


def limits(config: LaneConfig) -> dict[str, float]:
    breaker, drop = config.breaker, config.drop_rate
    return {
        "breaker_window": breaker.window,
        "min_samples": breaker.min_samples,
        "recover_below": breaker.recover_below,
        "degrade_at": breaker.degrade_at,
        "trip_after": breaker.trip_after,
        "drop_degrade": drop.degrade,
        "drop_trip": drop.trip,
        "drop_stop": drop.stop,
        "drop_min_total": drop.min_total,
        "backlog_bytes": config.callback.backlog_bytes,
    }
