"""What the account has left, what was spent, and how long it will last. And upstream's own count."""

from __future__ import annotations

from collections import deque
from typing import Any

from pipeline.control.ledger import Ledger

_RATE_SAMPLES = 60


class Money:
    def __init__(self, price: float, ledger: Ledger) -> None:
        self._price = price
        self._ledger = ledger
        self._balance: float | None = None
        self._volume: int | None = None
        self._volume_at_start: int | None = None
        self._spent_samples: deque[tuple[float, float]] = deque(maxlen=_RATE_SAMPLES)

    def see(self, volume: int | None, balance: float | None, now: float) -> None:
        if balance is not None:
            self._balance = balance
        if volume is not None:
            if self._volume is None:
                self._volume_at_start = volume
            elif volume < self._volume:  # a new day began, and all of it is since the start
                self._volume_at_start = 0
            self._volume = volume
        self._spent_samples.append((now, self.spent))

    @property
    def spent(self) -> float:
        """By our own count of results: the account is shared, its balance also moves for others."""
        counters = self._ledger.counters
        return self._price * (counters["answered"] + counters["offline"])

    def credits_status(self, now: float) -> dict[str, Any]:
        delivered = self._ledger.counters["delivered"]
        return {
            "balance": self._balance,
            "spent": round(self.spent, 4),
            "per_delivery": round(self.spent / delivered, 4) if delivered else None,
            "hours_left": self._hours_left(now),
        }

    def _hours_left(self, now: float) -> float | None:
        if self._balance is None or not self._spent_samples:
            return None
        began, spent_then = self._spent_samples[0]
        spending = self.spent - spent_then
        if now - began < 1 or spending <= 0:
            return None
        return round(self._balance / (spending / (now - began)) / 3600, 2)

    def upstream_status(self) -> dict[str, Any]:
        since = None
        if self._volume is not None and self._volume_at_start is not None:
            since = self._volume - self._volume_at_start
        return {"today": self._volume, "since_start": since}
