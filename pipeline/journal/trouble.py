"""What a database error means to the operator, and whether waiting can cure it."""

from __future__ import annotations

import errno
import sqlite3

from pipeline.events import Kind

#: detail: what (trouble, recovered, set_aside, gone, log_damaged, rows_lost, unclaimed), and with it why,
#: file, lasted or count
JOURNAL = Kind.JOURNAL

PRIMARY_CODE = 0xFF

_WORDS = {
    sqlite3.SQLITE_FULL: "disk full",
    sqlite3.SQLITE_BUSY: "locked by another process",
    sqlite3.SQLITE_LOCKED: "locked by another process",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_PERM: "no permission",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened",
    sqlite3.SQLITE_IOERR: "read or write error",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_CORRUPT: "corrupt",
    sqlite3.SQLITE_NOTADB: "corrupt",
}
_CORRUPT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
#: Not the database's trouble: a value in a row that it cannot take.
ROW_FAULTS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
)


class Corrupt(sqlite3.DatabaseError):
    """A check found damage that no statement has met yet."""


class Gone(Corrupt):
    """It is not damaged, but not where it was either: a new file is needed just the same."""


def is_corrupt(error: BaseException) -> bool:
    return isinstance(error, Corrupt) or _code(error) in _CORRUPT


def in_words(error: BaseException) -> str:
    if isinstance(error, Corrupt):
        return "gone" if isinstance(error, Gone) else "corrupt"
    if isinstance(error, OSError):
        if error.errno == errno.ENOSPC:
            return _WORDS[sqlite3.SQLITE_FULL]
        return (error.strerror or type(error).__name__).lower()
    return _WORDS.get(_code(error), str(error))


def _code(error: BaseException) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & PRIMARY_CODE
