"""Are most tickets dated wrongly, the same way?

A wrong time zone makes every ticket look eight hours old (all expired at pull, in silence) or not yet
born. Being a little late is an upstream with a backlog; only what is later than any backlog we would
accept, or more than a minute in the future, is a clock.

A quiet lane may need an hour for twenty tickets, and all of them would be lost in silence. So a few are
enough where they agree to the minute and are off by half an hour or more: no upstream hands out what has
been worthless for so long.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

_SAMPLES = 200
_SAMPLES_MIN = 20
_SAMPLES_FEW = 5
_MINUTE = 60.0
_QUARTER = 900.0
_HALF_HOUR = 1800.0


@dataclass(frozen=True, slots=True)
class Skew:
    offset: float  # seconds by which tickets look older than they can be
    likely: str  # what it probably is


class SkewWatch:
    def __init__(self, max_age: float) -> None:
        self.reconfigure(max_age)
        self._lags: deque[float] = deque(maxlen=_SAMPLES)

    def reconfigure(self, max_age: float) -> None:
        self._late = max_age + _MINUTE

    def sample(self, lag: float) -> None:
        self._lags.append(lag)

    def clear(self) -> None:
        self._lags.clear()

    def judge(self) -> Skew | None:
        return self._skew(0.0)

    def would_fit(self, step: float) -> bool:
        """If our clock moved by `step`, would the tickets look right, while now they do not?"""
        return self._skew(0.0) is not None and self._skew(step) is None

    def _skew(self, step: float) -> Skew | None:
        lags = [lag + step for lag in self._lags]
        if len(lags) < _SAMPLES_MIN and not _few_but_clear(lags):
            return None
        late = sum(lag > self._late for lag in lags)
        early = sum(lag < -_MINUTE for lag in lags)
        if max(late, early) * 2 <= len(lags):
            return None
        offset = median(lags)
        return Skew(offset, _likely(offset))


def _few_but_clear(lags: list[float]) -> bool:
    if len(lags) < _SAMPLES_FEW or max(lags) - min(lags) > _MINUTE:
        return False
    return abs(median(lags)) >= _HALF_HOUR - _MINUTE


def _likely(offset: float) -> str:
    nearest = round(offset / _QUARTER) * _QUARTER
    hours = nearest / 3600
    if nearest and abs(offset - nearest) < 300:
        return f"time zone off by {hours:+g} h: check pull.timezone"
    return f"clocks differ by {offset:+.0f} s"
