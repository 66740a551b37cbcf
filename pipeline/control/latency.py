"""Latency percentiles of the last minute from log-spaced counts: constant memory, no samples kept.

A bucket is 5 % wide, so a percentile is off by at most that.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import log
from operator import sub

_STEP = log(1.05)
_SMALLEST = 0.0005
_BUCKETS = 280  # 0.5 ms … about 430 s, beyond any deadline here
_SLICES = 6
_SLICE_SECONDS = 10


class Latency:
    def __init__(self) -> None:
        self._slices = [[0] * _BUCKETS for _ in range(_SLICES)]
        self._all = [0] * _BUCKETS  # the slices added up
        self._slice: int | None = None

    def record(self, now: float, seconds: float) -> None:
        current = int(now // _SLICE_SECONDS)
        if current != self._slice:
            self.slide(now)
        bucket = int(log(seconds / _SMALLEST) / _STEP) if seconds > _SMALLEST else 0
        if bucket >= _BUCKETS:
            bucket = _BUCKETS - 1
        self._slices[current % _SLICES][bucket] += 1
        self._all[bucket] += 1

    def slide(self, now: float) -> None:
        current = int(now // _SLICE_SECONDS)
        if self._slice is None:
            self._slice = current
        for passed in range(self._slice + 1, min(current, self._slice + _SLICES) + 1):
            self._forget(passed % _SLICES)
        self._slice = max(self._slice, current)

    def _forget(self, index: int) -> None:
        self._all = list(map(sub, self._all, self._slices[index]))
        self._slices[index] = [0] * _BUCKETS

    def quantiles(self, *shares: float) -> list[float | None]:
        """None where there is nothing to tell from."""
        seen = list(accumulate(self._all))
        if not seen[-1]:
            return [None] * len(shares)
        return [_middle_of(bisect_left(seen, share * seen[-1])) for share in shares]


def _middle_of(bucket: int) -> float:
    return _SMALLEST * float(1.05 ** (bucket + 0.5))
