"""Two connections, each on a thread of its own: one writes, one only reads."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import aiosqlite

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.journal.limits import Limits
from pipeline.journal.opening import Opening, Start, connect_reader
from pipeline.journal.seal import Seal
from pipeline.journal.trouble import JournalFault, in_words

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


class _Threaded(aiosqlite.Connection):
    """aiosqlite makes a hop to its thread for each statement; a group of rows is to cost one."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connector, iter_chunk_size=64)
        # A second signal ends the process at once: no thread may hold it back.
        self._thread.daemon = True

    async def start(self) -> None:
        try:
            await self
        except BaseException:
            # aiosqlite tells its thread to stop and does not wait; it would meet a closed loop.
            await asyncio.to_thread(self._thread.join)
            raise

    async def run(self, work: Work[T]) -> T:
        hop: Callable[..., Awaitable[T]] = self._execute
        return await hop(work, self._conn)


class Database:
    def __init__(
        self, path: Path, clock: Clock, limits: Limits, tell: Callable[[dict[str, str]], None]
    ) -> None:
        self.path = path
        self._clock = clock
        self._limits = limits
        self._tell = tell
        self._writer: _Threaded | None = None
        self._reader: _Threaded | None = None
        self._suspect = ""
        self._connecting = asyncio.Lock()
        self.seal: Seal | None = None
        self._lock: int | None = None

    async def open(self) -> Start:
        """Raises ConfigError if it cannot be used at all, JournalFault if not now."""
        try:
            if self._lock is None:
                self._lock = take_lock(self.path)
            return await self._connect()
        except (sqlite3.Error, OSError) as error:
            self._unlock()
            raise JournalFault(f"journal: {self.path.name}: {in_words(error)}") from error
        except ConfigError:
            self._unlock()
            raise

    async def _connect(self) -> Start:
        opening = Opening(self.path, self._limits, self._date(), self._suspect)
        try:
            self._writer = await self._started(opening.connect)
        finally:
            for note in opening.notes:
                self._suspect = ""
                self._tell(note)
        try:
            self._reader = await self._started(partial(connect_reader, self.path, self._limits.lock_seconds))
        except BaseException:
            await self._disconnect()
            raise
        assert opening.start is not None
        self.seal = opening.seal
        return opening.start

    async def _started(self, connector: Callable[[], sqlite3.Connection]) -> _Threaded:
        connection = _Threaded(connector)
        await connection.start()
        return connection

    async def write(self, work: Work[T]) -> T:
        async with self._connecting:
            if self._writer is None:
                await self._connect()
        assert self._writer is not None
        return await self._writer.run(work)

    async def read(self, work: Work[T]) -> T:
        if self._reader is None:
            raise JournalFault("journal: not open")
        try:
            return await self._reader.run(work)
        except sqlite3.Error as error:
            raise JournalFault(f"journal: {self.path.name}: {in_words(error)}") from error

    async def distrust(self, why: str) -> None:
        """The next write finds a new file; this one is set aside."""
        self._suspect = why
        await self._disconnect()

    async def close(self) -> None:
        await self._disconnect()
        self._unlock()

    async def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        writer, self._writer = self._writer, None
        for connection in (reader, writer):
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    await connection.close()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _date(self) -> str:
        return datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y%m%d-%H%M%S")


def take_lock(path: Path) -> int:
    """One program writes: SQLite before 3.51.3 can corrupt a log that two write to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(f"journal: {path.name} is in use by another tidegate") from None
    except OSError:
        os.close(handle)
        raise
    return handle
