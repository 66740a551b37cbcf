"""Room in the queue, reserved before a pull so that the herd cannot overshoot.

A pull asks for as many tickets as it has reserved, and no more arrive. How many it reserves is learned:
twice as many whenever the last one came back full, fewer as they come back with less.

The mark is `high_water`, or less where that many could not be served in time: at 5 answers a second,
800 waiting tickets that were already three minutes old when pulled would all die in the queue. It is
learned from how fast tickets leave, and starts low: 100 tickets show within a second how fast that is. A
`high_water` that low or lower is simply the mark.
"""

from __future__ import annotations

from math import ceil

from pipeline.config import LaneConfig
from pipeline.control.health import Window

_SAFETY = 0.8
_EXIT_WINDOW = 30
_AGAIN_WEIGHT = 0.01
#: Of the queries under way, so many come back while nothing is known yet: what providers commonly do.
_AGAIN_FIRST = 0.4
#: The most that upstreams commonly hand out at once, whatever the limit asked for.
_YIELD_FIRST = 50
#: An empty pull says little about how many come when there are some. It teaches to ask for less only as long
#: as fewer than this many could ask at once: two that hang must not keep all others from asking.
_EMPTY_AT_ONCE = 8
#: So few may wait without anybody knowing how fast they leave.
_MARK_FIRST = 100
#: However slow it goes, this many may wait, or a mistaken estimate could never be put right.
_MARK_MIN = 10


class Room:
    def __init__(self, config: LaneConfig) -> None:
        self._limit = config.pull.limit
        self.reconfigure(config)
        self._expected = float(min(self._limit, _YIELD_FIRST))
        self._exits = Window(_EXIT_WINDOW)
        self._oldest_pulled = 0.0
        self._again_share = _AGAIN_FIRST
        self._left = 0  # since the last tick
        self._first_pull: float | None = None
        self._last_pull = 0.0
        self._rate = 0.0
        self.reserved = 0
        self.reservations = 0  # how many there were
        self.mark = self._mark_first
        self.peak = 0

    def reconfigure(self, config: LaneConfig) -> None:
        self._high_water = config.queue.high_water
        self._mark_first = min(self._high_water, max(config.queue.low_water, _MARK_FIRST))
        self._pull_age = config.pull.max_age
        self._stale_age = config.query.stale_age

    @property
    def expected(self) -> int:
        return max(1, min(self._limit, ceil(self._expected)))

    def reserve(self, depth: int) -> int:
        """How many tickets the next pull may ask for; 0 = no room."""
        room = self.mark - depth - self.reserved
        if room < self._worth_asking():
            return 0
        wanted = min(self.expected, room)
        self.reserved += wanted
        self.reservations += 1
        return wanted

    def status(self) -> dict[str, int]:
        return {"mark": self.mark, "reserved": self.reserved, "peak": self.peak}

    def reserve_possible(self, depth: int) -> bool:
        return self.mark - depth - self.reserved >= self._worth_asking()

    def _worth_asking(self) -> int:
        """A pull per freed place would be a thousand pulls for one ticket each; a small queue is filled."""
        return 1 if self.mark < _MARK_FIRST else min(self.expected, self.mark // 4)

    def is_full(self, depth: int) -> bool:
        """No room even when every pull under way has come back empty."""
        return self.mark - depth < self._worth_asking()

    def settle(self, reserved: int, got: int, now: float) -> None:
        """A pull came back with `got` tickets."""
        self.reserved -= reserved
        self._first_pull = now if self._first_pull is None else self._first_pull
        self._last_pull = now
        if got >= reserved:
            self._expected = min(float(self._limit), max(self._expected, reserved * 2.0))
        elif got or self._expected > self.mark // _EMPTY_AT_ONCE:
            self._expected += (max(1.0, got * 1.25) - self._expected) * 0.2

    def give_back(self, reserved: int) -> None:
        """The pull failed: nothing learned."""
        self.reserved -= reserved

    def pulled(self, age: float) -> None:
        self._oldest_pulled = max(age, self._oldest_pulled * 0.999)

    def answered(self) -> None:
        self._left += 1
        self._again_share *= 1 - _AGAIN_WEIGHT

    def came_back(self) -> None:
        """A query ended without a result: its ticket waits in the queue again."""
        self._again_share += (1 - self._again_share) * _AGAIN_WEIGHT

    def coming_back(self, asking: int) -> int:
        """How many of the queries under way will need a place in the queue."""
        return ceil(asking * self._again_share)

    def tick(self, now: float, depth: int, asking: int, served: bool) -> None:
        """`asking` = queries under way, for which whoever joins now waits too; `served` = they may begin."""
        self._exits.record(now, count=self._left)
        self._left = 0
        self.peak = max(self.peak, depth)
        if self._exits.total and self._first_pull is not None:
            # While nothing leaves (an outage, or nothing to do) the last known rate is the best guess.
            self._rate = self._exits.total / min(_EXIT_WINDOW, max(1.0, now - self._first_pull))
            self.mark = int(max(_MARK_MIN, self._servable(now) - asking))
        self.mark = min(self.mark, self._high_water)
        if not served:
            # Nobody is asking: what waits here only grows old. Upstream may have others to give it to.
            self.mark = min(self.mark, self._mark_first + self._mark_first // 4)

    def _servable(self, now: float) -> float:
        """How many can leave before the oldest is too old. While nobody pulls, they grow older upstream."""
        age = min(self._pull_age, self._oldest_pulled + now - self._last_pull)
        return self._rate * _SAFETY * max(0.0, self._stale_age - age)
