"""How many messages may still go out in the last minute, as the receiver counts it."""

from __future__ import annotations

from collections import deque

SPAN = 60.0


class Window:
    """A sliding minute. A message is entered when its call has ended: it cannot have arrived later, so no
    minute on the receiver's clock holds more than ours does."""

    def __init__(self, per_minute: int) -> None:
        self._limit = per_minute
        self._sent: deque[float] = deque(maxlen=per_minute)

    def enter(self, now: float) -> None:
        self._sent.append(now)

    def free(self, now: float, reserve: int) -> int:
        """Places left, `reserve` of them not counted."""
        while self._sent and self._sent[0] <= now - SPAN:
            self._sent.popleft()
        return max(0, self._limit - reserve - len(self._sent))

    def opens_in(self, now: float, reserve: int) -> float:
        """Seconds until there is a place."""
        if self.free(now, reserve):
            return 0.0
        first = len(self._sent) - (self._limit - reserve)
        return self._sent[first] + SPAN - now
