"""What the journal tests are made of."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from zlib import crc32

from pipeline.clock import SystemClock
from pipeline.config import JournalConfig
from pipeline.events import Bus, Event
from pipeline.journal.journal import Journal
from pipeline.journal.limits import Limits
from pipeline.journal.recovery import Recovered
from pipeline.ticket import Answer, Outcome, Ticket, Verdict

LANE = "shopee"
PATIENCE = 10.0
PAGE = Answer(Verdict.ANSWERED, '{"item":"一件商品"}'.encode() * 500)


class SetClock(SystemClock):
    """The real clock, moved by hand: database threads know nothing of virtual time."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class World:
    """One journal's surroundings, kept over its restarts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = SetClock()
        self.bus = Bus()
        self.troubles: asyncio.Queue[str | None] = asyncio.Queue()

    def journal(self, level: str = "tickets", keep_days: float = 3, **limits: Any) -> Journal:
        config = JournalConfig(level=level, keep_days=keep_days)
        quick = {"group_seconds": 0.005, "retry_first": 0.01, "retry_max": 0.05, "lock_seconds": 0.05}
        journal = Journal(self.path, config, self.clock, self.bus, Limits(**(quick | limits)))
        journal.on_trouble = self.troubles.put_nowait
        return journal

    @asynccontextmanager
    async def opened(self, level: str = "tickets", **limits: Any) -> AsyncIterator[Journal]:
        journal = self.journal(level, **limits)
        await journal.open()
        try:
            yield journal
        finally:
            await journal.close()

    def ticket(self, trace: str = "t1", key: str = "", age: float = 1.0, **fields: Any) -> Ticket:
        # Everybody has a key of his own unless the test is about sharing one.
        key = key or ("7:8:sg" if trace == "t1" else f"7:{crc32(ascii(trace).encode())}:sg")
        shop, item, country = key.split(":")
        payload = {"shop_id": shop, "item_id": item, "country": country}
        fields = {"token": f"secret-of-{trace}"} | fields
        created = self.clock.now() - age
        return Ticket(key, trace, created, payload, created=created, **fields)

    def crashed(self, to: Path) -> World:
        """The files as a sudden end would leave them now."""
        to.mkdir()
        for file in self.path.parent.iterdir():
            if file.is_file() and not file.name.endswith(("-shm", ".lock")):
                shutil.copy(file, to)
        return World(to / self.path.name)

    def rows(self, query: str, *values: Any) -> list[Any]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as connection:
            return connection.execute(query, values).fetchall()

    def said(self, what: str) -> list[Event]:
        return [event for event in self.bus.recent() if event.detail.get("what") == what]

    async def next_trouble(self) -> str | None:
        async with asyncio.timeout(PATIENCE):
            return await self.troubles.get()

    async def until_trouble(self, wanted: Callable[[str | None], bool]) -> None:
        while not wanted(await self.next_trouble()):
            pass


async def flushed(journal: Journal) -> None:
    async with asyncio.timeout(PATIENCE):
        await journal.flush()


def pulled(journal: Journal, *tickets: Ticket) -> None:
    for ticket in tickets:
        journal.pulled(LANE, ticket)


def asked(journal: Journal, ticket: Ticket, answer: Answer | None = None) -> None:
    ticket.queries += 1
    journal.asking(ticket)
    if answer is not None:
        journal.answered(ticket, answer)


def ended(journal: Journal, ticket: Ticket, outcome: Outcome = Outcome.DELIVERED) -> None:
    ticket.outcome = outcome
    journal.ended(LANE, ticket, "callback")


def delivered(journal: Journal, ticket: Ticket, answer: Answer = PAGE) -> None:
    pulled(journal, ticket)
    asked(journal, ticket, answer)
    journal.calling(ticket)
    ended(journal, ticket)


async def recovered(journal: Journal, world: World, lane: str = LANE) -> Recovered:
    now = world.clock.now()
    return await journal.recover(lane, now, query_age=240, again_age=290, callback_age=290, keys_max=100)
