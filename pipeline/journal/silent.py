"""Level `off`: a journal that remembers nothing and costs nothing."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, tzinfo
from pathlib import Path
from typing import Any

from pipeline.clock import Clock
from pipeline.config import JournalConfig
from pipeline.events import Bus, Step
from pipeline.journal.answers import Kept
from pipeline.journal.history import LaneReport, Minute
from pipeline.journal.journal import Journal
from pipeline.journal.recovery import Recovered
from pipeline.ticket import Answer, Ticket


def make_journal(path: Path, config: JournalConfig, clock: Clock, bus: Bus) -> Journal:
    return SilentJournal() if config.level == "off" else Journal(path, config, clock, bus)


class SilentJournal(Journal):
    def __init__(self) -> None:
        self.lost = 0
        self.on_trouble = lambda trouble: None

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def flush(self, hurry: bool = True) -> None:
        pass

    def reconfigure(self, config: JournalConfig) -> None:
        pass

    @property
    def trouble(self) -> str | None:
        return None

    @property
    def buffered(self) -> tuple[int, int]:
        return 0, 0

    def pulled(self, lane: str, ticket: Ticket, entry: str = "queued") -> None:
        pass

    def asking(self, ticket: Ticket) -> None:
        pass

    def answered(self, ticket: Ticket, answer: Answer) -> None:
        pass

    def calling(self, ticket: Ticket) -> None:
        pass

    def step(self, ticket: Ticket, stage: str, what: str) -> None:
        pass

    def ended(self, lane: str, ticket: Ticket, stage: str) -> None:
        pass

    def keep(self, ticket: Ticket, answer: Answer) -> Kept | None:
        return None

    def saving(self, ticket: Ticket) -> None:
        return None

    async def fetch(self, kept: Kept) -> Answer | None:
        return kept.answer

    def forget(self, ticket: Ticket) -> None:
        pass

    async def recover(
        self, lane: str, now: float, *, query_age: float, again_age: float, callback_age: float, keys_max: int
    ) -> Recovered:
        return Recovered()

    async def tell_unclaimed(self, lanes: Collection[str]) -> None:
        pass

    async def trace(self, trace_id: str) -> list[Step]:
        return []

    async def trace_item(self, shop_id: str, item_id: str) -> list[Step]:
        return []

    def minute(self, lane: str, at: float, data: Minute) -> None:
        pass

    async def history(self, lane: str, since: float, until: float, step: int = 60) -> list[dict[str, Any]]:
        return []

    async def report(self, day: date, zone: tzinfo) -> dict[str, LaneReport]:
        return {}
