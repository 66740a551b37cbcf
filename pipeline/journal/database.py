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
from pipeline.errors import ConfigError, JournalFault
from pipeline.journal.limits import Limits
from pipeline.journal.opening import Opening, Start, connect_reader, identity
from pipeline.journal.seal import Seal
from pipeline.journal.trouble import Gone, in_words

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
        self.generation = 0  # how often it was opened
        self._connecting = asyncio.Lock()
        self.seal: Seal | None = None
        self._lock: int | None = None
        self._file = (0, 0)

    async def open(self) -> Start:
        """Raises ConfigError if it cannot be used at all, JournalFault if not now."""
        try:
            if self._lock is None:
                self._lock = take_lock(self.path)
            return await self._connect()
        except (sqlite3.Error, OSError) as error:
            self._unlock()
            raise JournalFault(f"journal: {self.path}: {in_words(error)} (see daemon.data_dir)") from error
        except ConfigError:
            self._unlock()
            raise

    async def _connect(self) -> Start:
        if self._lock is not None and os.fstat(self._lock).st_nlink == 0:
            self._lock_anew()
        opening = Opening(self.path, self._limits, self._date(), self._suspect, self.seal)
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
        self._file = opening.file
        self.generation += 1
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
        if self._lock is None:
            raise JournalFault("journal: not open")
        try:
            async with self._connecting:
                if self._reader is None:
                    await self._connect()
            assert self._reader is not None
            return await self._reader.run(work)
        except (sqlite3.Error, OSError) as error:
            raise JournalFault(f"journal: {self.path.name}: {in_words(error)}") from error

    def miss(self, connection: sqlite3.Connection) -> None:
        """Raises Gone if the file was taken away: SQLite would go on writing where nobody will look."""
        if identity(self.path) != self._file:
            raise Gone("removed while it was open")

    async def distrust(self, why: str, generation: int) -> bool:
        """Whoever comes next finds a new file; this one is set aside. False if it was already.

        Nobody may connect before the old connections are closed: the last of them removes the log by its
        name, and that would be the new file's.
        """
        async with self._connecting:
            if generation != self.generation or self._writer is None:
                return False
            self._suspect = why
            await self._disconnect()
        return True

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

    def _lock_anew(self) -> None:
        """The lock was taken away with the file; another daemon may have begun since."""
        lock = take_lock(self.path)
        self._unlock()
        self._lock = lock

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
        raise ConfigError(
            f"journal: {path} is in use by another tidegate: stop that one, or choose another daemon.data_dir"
        ) from None
    except OSError:
        os.close(handle)
        raise
    return handle
