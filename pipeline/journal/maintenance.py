"""`tidegate db check | backup | vacuum`: from another process, while the daemon runs or not."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pipeline.errors import ConfigError, JournalFault
from pipeline.journal import schema
from pipeline.journal.database import take_lock
from pipeline.journal.opening import connect_reader
from pipeline.journal.pruning import request_file
from pipeline.journal.trouble import in_words, is_corrupt

LOCK_SECONDS = 10.0
PROBLEMS_MAX = 20
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Vacuumed:
    bytes_before: int
    bytes_after: int


def check(path: Path) -> list[str]:
    """What is wrong with the database; empty if nothing is."""
    with _reading(path) as connection:
        try:
            rows = connection.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})").fetchall()
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            return [str(error)]
    return [row[0] for row in rows if row[0] != "ok"]


def backup(path: Path, to: Path) -> int:
    """A whole copy as of one moment; answers its bytes. The key that seals tokens stays behind."""
    with _reading(path) as source:
        try:
            os.close(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise JournalFault(f"{to.name} exists already: nothing was written") from None
        except OSError as error:
            raise JournalFault(f"{to}: {in_words(error)}") from None
        try:
            with closing(sqlite3.connect(to)) as target:
                source.backup(target)
        except BaseException:
            to.unlink(missing_ok=True)
            raise
    return to.stat().st_size


def vacuum(path: Path, timeout: float = 60.0) -> Vacuumed:
    """Gives unused space back. A running daemon does it itself, asked by a file beside the database."""
    _must_exist(path)
    before = path.stat().st_size
    try:
        lock = take_lock(path)
    except ConfigError:
        _ask_the_daemon(path, timeout)
    else:
        try:
            with _in_words(path), closing(sqlite3.connect(path, timeout=LOCK_SECONDS)) as connection:
                schema.refuse_newer(path.name, schema.version(connection))
                connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            os.close(lock)
    return Vacuumed(before, path.stat().st_size)


def _ask_the_daemon(path: Path, timeout: float) -> None:
    request = request_file(path)
    request.touch(mode=0o600)
    patience = Event()
    for _ in range(round(timeout / POLL_SECONDS)):
        if not request.exists():
            return
        patience.wait(POLL_SECONDS)
    request.unlink(missing_ok=True)
    raise JournalFault(f"{path.name}: the running daemon did not finish within {timeout:g} s")


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    _must_exist(path)
    with _in_words(path), closing(connect_reader(path, LOCK_SECONDS)) as connection:
        yield connection


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JournalFault(f"{path.name}: {in_words(error)}") from error


def _must_exist(path: Path) -> None:
    if not path.exists():
        raise JournalFault(f"{path.name}: there is no such file")
