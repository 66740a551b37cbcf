"""Opening the database: made if it is new, checked, brought to this version, set aside if it is corrupt.

All of it runs on the database's own thread. What happened is kept as notes for the loop's side to announce.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from pipeline.journal import schema, wal
from pipeline.journal.limits import Limits
from pipeline.journal.seal import Seal, load_seal
from pipeline.journal.sql import open_inbox, statement
from pipeline.journal.trouble import Corrupt, is_corrupt

SIDE_FILES = ("-wal", "-shm")


@dataclass(frozen=True, slots=True)
class Start:
    """Where the last run left off."""

    run: int  # this run's number
    clean: bool  # the last one ended by itself, or there was none
    first_ticket: int
    first_answer: int


class Opening:
    def __init__(
        self, path: Path, limits: Limits, date: str, suspect: str = "", seal: Seal | None = None
    ) -> None:
        self.notes: list[dict[str, str]] = []
        self.start: Start | None = None
        self.seal = seal
        self.file = (0, 0)
        self._path = path
        self._limits = limits
        self._date = date
        self._suspect = suspect

    def connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.seal = load_seal(self._path.with_suffix(".key"), self.seal)
        if self._suspect:
            self._set_aside(self._suspect)
        connection = self._connect()
        self.file = identity(self._path)
        return connection

    def _connect(self) -> sqlite3.Connection:
        try:
            return self._sound()
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            self._set_aside(str(error))
        return self._sound()

    def _sound(self) -> sqlite3.Connection:
        orphaned = self._set_log_aside()
        self._make_private()
        log = wal.look(Path(f"{self._path}-wal"))
        connection = sqlite3.connect(
            self._path,
            timeout=self._limits.lock_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            found = schema.version(connection)
            schema.refuse_newer(self._path.name, found)
            self._configure(connection, is_new=not found)
            damaged = self._judge_log(connection, log) or orphaned
            start = _start(connection) if found else None
            self._check(connection, thorough=damaged or (start is not None and not start.clean))
            schema.migrate(connection, self._path.name)
            open_inbox(connection)
            self.start = start or _start(connection)
            if damaged:
                self.start = Start(self.start.run, False, self.start.first_ticket, self.start.first_answer)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_private(self) -> None:
        """Readable by its owner alone; SQLite gives its side files the same mode."""
        os.close(os.open(self._path, os.O_RDONLY | os.O_CREAT, 0o600))

    def _configure(self, connection: sqlite3.Connection, is_new: bool) -> None:
        # Lets the daemon give space back in small steps. Said of an old database it would write into it,
        # and nothing may be written before the log has been judged.
        if is_new:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute(f"PRAGMA synchronous = {self._limits.synchronous}")
        connection.execute(f"PRAGMA journal_size_limit = {self._limits.wal_max}")

    def _set_log_aside(self) -> bool:
        """A log without its database: SQLite would remove it unseen."""
        log = Path(f"{self._path}-wal")
        if self._path.exists() or not log.exists():
            return False
        kept = self._aside_name(log.name)
        log.replace(kept)
        self._say_log_damaged(kept)
        return True

    def _judge_log(self, connection: sqlite3.Connection, log: wal.LogSeen) -> bool:
        _, frames_used, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not log.is_damaged(frames_used):
            return False
        source = Path(f"{self._path}-wal")
        kept = self._aside_name(source.name)
        shutil.copyfile(source, kept)
        kept.chmod(0o600)
        self._say_log_damaged(kept)
        return True

    def _say_log_damaged(self, kept: Path) -> None:
        self.notes.append({"what": "log_damaged", "file": kept.name, "why": "the last rows may be missing"})

    def _check(self, connection: sqlite3.Connection, thorough: bool) -> None:
        if thorough or self._path.stat().st_size <= self._limits.check_max:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise Corrupt(found.replace("\n", " "))

    def _set_aside(self, why: str) -> None:
        if not self._path.exists():
            self.notes.append({"what": "gone", "why": why})
            return
        kept = self._aside_name(self._path.name)
        self._path.replace(kept)
        for side in SIDE_FILES:
            file = Path(f"{self._path}{side}")
            if file.exists():
                file.replace(f"{kept}{side}")
        self.notes.append({"what": "set_aside", "file": kept.name, "why": why})

    def _aside_name(self, name: str) -> Path:
        first = self._path.with_name(f"{name}.corrupt-{self._date}")
        number, kept = 1, first
        while kept.exists():
            number += 1
            kept = first.with_name(f"{first.name}-{number}")
        return kept


def identity(path: Path) -> tuple[int, int]:
    """Which file stands at this path; (0, 0) for none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _start(connection: sqlite3.Connection) -> Start:
    last = connection.execute(statement("last_run")).fetchone()
    tickets, answers = connection.execute(statement("last_numbers")).fetchone()
    run, clean = last or (0, True)
    return Start(run + 1, bool(clean), tickets + 1, answers + 1)


def connect_reader(path: Path, lock_seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=lock_seconds,
        isolation_level=None,
        check_same_thread=False,
    )
