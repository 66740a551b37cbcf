"""A bound on retries, so that they cannot keep an outage alive.

At most `share` of the last minute's first calls plus `per_second`. A retry that succeeds gives its place
back: when the far side has returned, what waited must not wait on a rule made for its absence.
"""

from __future__ import annotations

from pipeline.config import RetryConfig
from pipeline.control.health import Window

_WINDOW_SECONDS = 60


class RetryBudget:
    def __init__(self, config: RetryConfig) -> None:
        self.config = config
        self._calls = Window(_WINDOW_SECONDS)
        self._retries = Window(_WINDOW_SECONDS)
        self._refunds = Window(_WINDOW_SECONDS)

    def call(self, now: float) -> None:
        self._calls.record(now)

    def spend(self, now: float) -> bool:
        """True if one more retry may be made now, and counts it."""
        for window in (self._calls, self._retries, self._refunds):
            window.slide(now)
        allowed = self.config.share * self._calls.total + self.config.per_second * _WINDOW_SECONDS
        if self._retries.total - self._refunds.total + 1 > allowed:
            return False
        self._retries.record(now)
        return True

    def refund(self, now: float) -> None:
        self._refunds.record(now)
