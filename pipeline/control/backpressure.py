"""Room in the queue, reserved before a pull so that the herd cannot overshoot.

A pull asks for as many tickets as it has reserved, and no more arrive. How many it reserves is learned:
twice as many whenever the last one came back full, fewer as they come back emptier.

The mark is `high_water`, or less where that many could not be served in time: at 5 answers a second,
800 waiting tickets that were already three minutes old when pulled would all die in the queue.
"""

from __future__ import annotations

from math import ceil

from pipeline.config import QueueConfig
from pipeline.control.health import Window

_SAFETY = 0.8
_EXIT_WINDOW = 30


class Room:
    def __init__(self, config: QueueConfig, limit: int, stale_age: float) -> None:
        self._config = config
        self._limit = limit
        self._stale_age = stale_age
        self._expected = float(limit)
        self._exits = Window(_EXIT_WINDOW)
        self._oldest_pulled = 0.0
        self.reserved = 0
        self.mark = config.high_water
        self.peak = 0

    def reconfigure(self, config: QueueConfig, stale_age: float) -> None:
        self._config = config
        self._stale_age = stale_age

    @property
    def expected(self) -> int:
        return max(1, min(self._limit, ceil(self._expected)))

    def reserve(self, depth: int) -> int:
        """How many tickets the next pull may ask for; 0 = no room."""
        if not self.reserve_possible(depth):
            return 0
        wanted = self.expected
        self.reserved += wanted
        return wanted

    def reserve_possible(self, depth: int) -> bool:
        return depth + self.reserved + self.expected <= self.mark

    def is_full(self, depth: int) -> bool:
        """No room even when every pull under way has come back empty."""
        return depth + self.expected > self.mark

    def settle(self, reserved: int, got: int) -> None:
        self.reserved -= reserved
        if got >= reserved:
            self._expected = min(float(self._limit), max(self._expected, reserved * 2.0))
        else:
            self._expected += (max(1.0, got * 1.25) - self._expected) * 0.2

    def give_back(self, reserved: int) -> None:
        """The pull failed: nothing learned."""
        self.reserved -= reserved

    def pulled(self, age: float) -> None:
        self._oldest_pulled = max(age, self._oldest_pulled * 0.999)

    def left(self, now: float) -> None:
        """A ticket left the queue for good."""
        self._exits.record(now)

    def tick(self, now: float, depth: int) -> None:
        self._exits.slide(now)
        self.peak = max(self.peak, depth)
        config = self._config
        if depth < config.low_water or not self._exits.total:
            self.mark = config.high_water
            return
        rate = self._exits.total / _EXIT_WINDOW
        in_time = rate * _SAFETY * max(0.0, self._stale_age - self._oldest_pulled)
        self.mark = int(min(config.high_water, max(config.low_water, in_time)))
