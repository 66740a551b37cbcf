"""How much the far side can take, learned from being told "too much".

A provider that answers 429 beyond its capacity would have most of our calls refused, each refusal a fault
and each fault a retry. So the calls in flight shrink in proportion to the share refused, and grow by a
tenth while none is: about one period of latency apart, as congestion control does. It hovers a few per
cent above the capacity, which is what keeps the capacity used.

A provider that lets calls wait instead of refusing them says so by its slowness. Then the calls in flight
come down to what it finishes in the time a call may take (Little's law): the same work, a shorter wait.

And where calls wait mostly for us, because this process has no CPU left, more of them at once are only
more memory to walk through: 500 answers of 100 KB do not fit in any cache. Then fewer are kept in flight.
"""

from __future__ import annotations

_GROW = 1.1
_PERIOD_MIN = 0.25
_CUT_PERIOD_MAX = 5.0
_LAG_MIN = 0.005
_LAG_SHARE = 4.0
_LAG_CUT = 0.8
_LAG_CUT_DEEP = 0.5
_LAG_FLOOR = 32.0


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
        if busy > self._peak_busy:
            self._peak_busy = busy

    def too_slow(self, finished_in_time: float, now: float) -> None:
        """Calls took too long; that many would have been finished in the time allowed."""
        self._limit = max(1.0, min(self._limit, finished_in_time))
        self._begin(now)

    def tick(self, now: float, latency: float | None, lag: float = 0.0) -> None:
        """`lag` = how late our own loop is."""
        passed = now - self._began
        if lag > _LAG_MIN and latency is not None and latency < _LAG_SHARE * lag and not self._refused:
            cut = _LAG_CUT if lag < 3 * _LAG_MIN else _LAG_CUT_DEEP
            self._limit = max(min(_LAG_FLOOR, self._limit), self._limit * cut)
            self._begin(now)
            return
        latency = max(_PERIOD_MIN, latency or 0.0)
        if self._refused and passed >= min(latency, _CUT_PERIOD_MAX):
            share = self._refused / self._total
            used = min(self._limit, float(max(self._peak_busy, 1)))
            self._limit = max(1.0, used * (1 - share / 2))
            self._begin(now)
        elif self._total and passed >= latency:
            # Not sooner than the last growth can have shown its effect.
            if self._peak_busy >= 0.8 * self.limit:
                self._limit = min(self._slots_max, self._limit * _GROW + 1)
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._began, self._total, self._refused, self._peak_busy = now, 0, 0, 0
