"""How many calls a stage may have in flight: a table of stage × mode, and how modes spread."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.config import LaneConfig
from pipeline.control.breaker import Mode

STAGES = ("pull", "query", "callback")

_TRIPPED = frozenset({Mode.OPEN, Mode.HALF_OPEN})
_SLOWED = frozenset({Mode.DEGRADED, Mode.SEVERE})


def table(config: LaneConfig) -> dict[tuple[str, Mode], int]:
    slots: dict[tuple[str, Mode], int] = {}
    for stage in STAGES:
        section = getattr(config, stage)
        slots[stage, Mode.NORMAL] = section.workers * section.batch
        slots[stage, Mode.DEGRADED] = section.workers * section.degraded_batch
        slots[stage, Mode.SEVERE] = section.workers * section.severe_batch
        slots[stage, Mode.OPEN] = 0
        slots[stage, Mode.HALF_OPEN] = min(config.breaker.trials, slots[stage, Mode.NORMAL])
    return slots


def spread(breakers: Mapping[str, Mode], drop_degrades: bool) -> dict[str, Mode]:
    """Each stage's effective mode: its own breaker's, slowed by the others' troubles."""
    modes = dict(breakers)
    callback_slow = breakers["callback"] is not Mode.NORMAL
    for stage in ("pull", "query"):
        if modes[stage] is Mode.NORMAL and (drop_degrades or callback_slow):
            modes[stage] = Mode.DEGRADED
    troubled = sum(mode is not Mode.NORMAL for mode in breakers.values())
    if troubled >= 2 or breakers["callback"] in _TRIPPED:
        modes = {stage: Mode.SEVERE if mode in _SLOWED else mode for stage, mode in modes.items()}
    return modes
