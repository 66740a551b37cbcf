"""Latency percentiles of the last minute from log-spaced counts: constant memory, no samples kept.

A bucket is 5 % wide, so a percentile is off by at most that.
"""

from __future__ import annotations

from math import log

_STEP = log(1.05)
_SMALLEST = 0.0005
_BUCKETS = 280  # 0.5 ms … about 430 s, beyond any deadline here
_SLICES = 6
_SLICE_SECONDS = 10


class Latency:
    def __init__(self) -> None:
        self._slices = [[0] * _BUCKETS for _ in range(_SLICES)]
        self._totals = [0] * _SLICES
        self._slice: int | None = None

    def record(self, now: float, seconds: float) -> None:
        current = int(now // _SLICE_SECONDS)
        if current != self._slice:
            self.slide(now)
        bucket = int(log(seconds / _SMALLEST) / _STEP) if seconds > _SMALLEST else 0
        index = current % _SLICES
        self._slices[index][bucket if bucket < _BUCKETS else -1] += 1
        self._totals[index] += 1

    def slide(self, now: float) -> None:
        current = int(now // _SLICE_SECONDS)
        if self._slice is None:
            self._slice = current
        for passed in range(self._slice + 1, min(current, self._slice + _SLICES) + 1):
            self._slices[passed % _SLICES] = [0] * _BUCKETS
            self._totals[passed % _SLICES] = 0
        self._slice = max(self._slice, current)

    def quantiles(self, *shares: float) -> list[float | None]:
        """None where there is nothing to tell from."""
        total = sum(self._totals)
        if not total:
            return [None] * len(shares)
        merged = [sum(column) for column in zip(*self._slices, strict=True)]
        return [_value_at(merged, share * total) for share in shares]


def _value_at(merged: list[int], rank: float) -> float:
    seen = 0
    for bucket, count in enumerate(merged):
        seen += count
        if seen >= rank and count:
            return _SMALLEST * float(1.05 ** (bucket + 0.5))
    return _SMALLEST * float(1.05**_BUCKETS)
