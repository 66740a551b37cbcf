"""Dropped ÷ (delivered + dropped), and what follows from it.

The window is ten minutes of work. In a long outage nothing is delivered, and if the old deliveries slid
out of the window meanwhile, the few tickets lost at its beginning would look like everything: the daemon
would stop for good in the middle of an outage that ends by itself. So time stands still here while a
breaker is open, and the level rises only when something was dropped since the last look.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pipeline.config import DropRateConfig
from pipeline.control.health import Window


class Level(StrEnum):
    OK = "ok"
    DEGRADE = "degrade"
    TRIP = "trip"
    STOP = "stop"


_ORDER = (Level.OK, Level.DEGRADE, Level.TRIP, Level.STOP)


class DropRate:
    def __init__(self, config: DropRateConfig) -> None:
        self.config = config
        self._window = Window(config.window or 1)
        self._since_resume = [0, 0]
        self._fresh_drops = 0
        self._stood_still = 0.0
        self._last_tick: float | None = None
        self.level = Level.OK

    def delivered(self, now: float) -> None:
        self._count(now, 0)

    def dropped(self, now: float) -> None:
        self._fresh_drops += 1
        self._count(now, 1)

    def _count(self, now: float, dropped: int) -> None:
        self._since_resume[0] += 1
        self._since_resume[1] += dropped
        if self.config.window:
            self._window.record(now - self._stood_still, marked=dropped)

    def numbers(self) -> tuple[int, int]:
        """Delivered and dropped."""
        if self.config.window:
            return self._window.total - self._window.marked, self._window.marked
        return self._since_resume[0] - self._since_resume[1], self._since_resume[1]

    @property
    def rate(self) -> float:
        delivered, dropped = self.numbers()
        return dropped / (delivered + dropped) if delivered + dropped else 0.0

    @property
    def judged(self) -> bool:
        return sum(self.numbers()) >= self.config.min_total

    def tick(self, now: float, working: bool = True) -> bool:
        """Look again; True if the level changed."""
        if not working and self._last_tick is not None:
            self._stood_still += now - self._last_tick
        self._last_tick = now
        if self.config.window:
            self._window.slide(now - self._stood_still)
        found = self._level_now()
        rises = _ORDER.index(found) > _ORDER.index(self.level)
        if rises and not self._fresh_drops:
            return False
        if self.judged:  # drops that nobody could judge yet are still news when somebody can
            self._fresh_drops = 0
        changed, self.level = found is not self.level, found
        return changed

    def _level_now(self) -> Level:
        if not self.judged:
            return Level.OK
        rate, config = self.rate, self.config
        if rate >= config.stop:
            return Level.STOP
        if rate >= config.trip:
            return Level.TRIP
        return Level.DEGRADE if rate >= config.degrade else Level.OK

    def status(self) -> dict[str, Any]:
        delivered, dropped = self.numbers()
        return {
            "rate": round(self.rate, 4),
            "dropped": dropped,
            "delivered": delivered,
            "level": str(self.level),
            "judged": self.judged,
        }

    def restart(self) -> None:
        self._window.clear()
        self._since_resume = [0, 0]
        self._fresh_drops = 0
        self.level = Level.OK
