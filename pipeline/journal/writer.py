"""The writer: gathers rows into groups, writes them, and goes on trying when the disk will not have them.

A group is written when its first row has waited long enough or enough have gathered; everything that comes
while the database is busy is the next group. In trouble the group stays in memory and is tried again, with
longer and longer pauses, and what comes meanwhile gathers behind it up to a bound.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

import structlog

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.journal.breath import breathing
from pipeline.journal.database import Database
from pipeline.journal.group import Group
from pipeline.journal.limits import Limits
from pipeline.journal.trouble import in_words, is_corrupt

log = structlog.get_logger()


class Writer:
    def __init__(self, database: Database, clock: Clock, limits: Limits) -> None:
        self.group = Group()
        self.trouble: str | None = None
        self.rows = 0  # in memory, those being written included
        self.bytes = 0
        self.on_trouble: Callable[[str | None], None] = lambda trouble: None
        self.on_new_file: Callable[[Group], None] = lambda group: None
        self.on_lost: Callable[[int], None] = lambda count: None
        self._database = database
        self._clock = clock
        self._limits = limits
        self._writing: Group | None = None
        self._last_rows = 0
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def counted(self, size: int = 0) -> None:
        """A row was put into the group."""
        group, limits = self.group, self._limits
        group.rows += 1
        self.rows += 1
        if size:
            group.bytes += size
            self.bytes += size
        if group.rows == 1:
            loop = asyncio.get_running_loop()
            wait = limits.busy_seconds if self._last_rows >= limits.busy_rows else limits.group_seconds
            self._timer = loop.call_later(wait, self._due.set)
        if group.rows >= limits.group_rows or group.bytes >= limits.group_bytes:
            self._due.set()

    async def flush(self, hurry: bool = True) -> None:
        """Until all rows so far are on disk; without `hurry`, when their group would go anyway."""
        group = self.group if self.group.rows else self._writing
        if group is None:
            return
        if hurry:
            self._due.set()
        await group.done.wait()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            await self.write_once()

    async def write_once(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self.group = self.group, Group()
        if not group.rows:
            return
        self._writing = group
        self._last_rows = group.rows
        await self._until_written(group)
        self._writing = None
        self.rows -= group.rows
        self.bytes -= group.bytes
        group.mark_written()

    async def _until_written(self, group: Group) -> None:
        pause = self._limits.retry_first
        while True:
            try:
                generation = self._database.generation
                with breathing():
                    lost = await self._database.write(group.write)
                break
            except (sqlite3.Error, OSError, MemoryError, ConfigError) as error:
                self._say(in_words(error))
                if is_corrupt(error) and await self._database.distrust(str(error), generation):
                    self.on_new_file(group)
            except Exception as error:
                # A bug of ours: trying the same rows again would end in the same way, for ever.
                log.error("the journal could not write its rows", exc_info=error)
                lost = group.rows
                break
            await self._clock.sleep(pause)
            pause = min(pause * 2, self._limits.retry_max)
        if lost:
            self.on_lost(lost)
        self._say(None)

    async def begin_anew(self, error: BaseException, generation: int) -> None:
        """Somebody else has met damage: a new file, with what is under way written into it again."""
        if await self._database.distrust(str(error), generation):
            self.on_new_file(self.group)
            self.counted()

    def _say(self, trouble: str | None) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self.on_trouble(trouble)
