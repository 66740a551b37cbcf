"""What happened lately, in one-second buckets: a window that slides without keeping samples."""

from __future__ import annotations


class Window:
    """Counts of two kinds (all, and the marked ones among them) over the last `seconds`."""

    def __init__(self, seconds: int) -> None:
        self._size = seconds
        self._all = [0] * seconds
        self._marked = [0] * seconds
        self._second: int | None = None
        self._index = 0
        self.total = 0
        self.marked = 0

    def record(self, now: float, marked: int = 0, count: int = 1) -> None:
        if int(now) != self._second:
            self.slide(now)
        index = self._index
        self._all[index] += count
        self._marked[index] += marked
        self.total += count
        self.marked += marked

    def slide(self, now: float) -> None:
        second = int(now)
        if self._second is None:
            self._second = second
            self._index = second % self._size
        if second <= self._second:
            return
        for passed in range(self._second + 1, min(second, self._second + self._size) + 1):
            index = passed % self._size
            self.total -= self._all[index]
            self.marked -= self._marked[index]
            self._all[index] = self._marked[index] = 0
        self._second = second
        self._index = second % self._size

    @property
    def share(self) -> float:
        return self.marked / self.total if self.total else 0.0

    def clear(self) -> None:
        self._all = [0] * self._size
        self._marked = [0] * self._size
        self.total = self.marked = 0
