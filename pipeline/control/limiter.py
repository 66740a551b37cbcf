"""How much the far side can take, learned from being told "too much".

A provider that answers 429 beyond its capacity would have most of our calls refused, each refusal a fault
and each fault a retry. So the calls in flight shrink in proportion to the share refused, and grow by a
tenth while none is: about one period of latency apart, as congestion control does. It hovers a few per
cent above the capacity, which is what keeps the capacity used.
"""

from __future__ import annotations

_GROW = 1.1
_PERIOD_MIN = 0.25


class Limiter:
    def __init__(self, slots: int, now: float) -> None:
        self._slots_max = float(slots)
        self._limit = float(slots)
        self._began = now
        self._peak_busy = 0
        self._total = self._refused = 0

    @property
    def limit(self) -> int:
        return int(self._limit)

    def record(self, refused: bool, busy: int) -> None:
        self._total += 1
        self._refused += refused
        self._peak_busy = max(self._peak_busy, busy)

    def tick(self, now: float, latency: float | None) -> None:
        period = max(_PERIOD_MIN, min(latency or 0.0, 5.0))
        if now - self._began < period or not self._total:
            return
        share = self._refused / self._total
        if share:
            used = min(self._limit, float(max(self._peak_busy, 1)))
            self._limit = max(1.0, used * (1 - share / 2))
        elif self._peak_busy >= 0.8 * self.limit:
            self._limit = min(self._slots_max, self._limit * _GROW + 1)
        self._began, self._total, self._refused, self._peak_busy = now, 0, 0, 0
