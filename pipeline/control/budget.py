"""A bound on retries, so that they cannot keep an outage alive.

In any minute at most `share` of the calls plus `per_second`. That is for retries which fail. One that
succeeds gives back its place and one more, so that retries which work at least every other time are not
held back: when the far side has returned, or fails now and then, what waits must not wait on a rule made
for its absence. From nothing to full speed the number doubles with every round of answers.
"""

from __future__ import annotations

from pipeline.config import RetryConfig
from pipeline.control.health import Window

#: A burst of this many seconds' worth may be saved up, and is taken off the flow so that the sum holds.
_BURST_SECONDS = 5.0
_MINUTE = 60.0
_SUCCESS_SECONDS = 10
_REFUND = 2.0


class RetryBudget:
    def __init__(self, config: RetryConfig) -> None:
        self.config = config
        self._successes = Window(_SUCCESS_SECONDS)
        self._tokens = config.per_second * _BURST_SECONDS
        self._filled_at: float | None = None
        self._calls = 0  # since somebody last wanted to retry

    def call(self) -> None:
        self._calls += 1

    def spend(self, now: float) -> bool:
        """True if one more retry may be made now, and counts it."""
        self._add(now, self._calls * self.config.share)
        self._calls = 0
        if self._tokens < 1:
            return False
        self._tokens -= 1 - self.config.share  # a retry is a call too
        return True

    def refund(self, now: float) -> None:
        """A retry succeeded."""
        self._successes.record(now)
        self._add(now, _REFUND)

    def _add(self, now: float, tokens: float) -> None:
        if self._filled_at is not None:
            flow = self.config.per_second * (_MINUTE - _BURST_SECONDS) / _MINUTE
            tokens += flow * (now - self._filled_at)
        self._filled_at = now
        self._successes.slide(now)
        most = self.config.per_second * _BURST_SECONDS + self._successes.total
        self._tokens = min(self._tokens + tokens, max(most, 1.0))
