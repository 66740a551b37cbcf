"""The SQL of this package, by name; and rows written many at a time.

Every call into SQLite lets go of the interpreter and has to get it back from a busy event loop. `executemany`
does that once a row; one statement with many rows does it once. Beside a loop without a moment's rest (and
without the pauses of `breath`) `executemany` brought no group to disk in 5 s at 5,000 rows/s, this a part.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

ROWS_MARK = "/*rows*/"
#: Rows of one statement: 256 × 16 parameters is far below SQLite's 32,766.
CHUNK_MAX = 256
#: Up to here every number of rows has a statement of its own; above, powers of two. All stay prepared.
EXACT_MAX = 64
#: Eight kinds of rows, seldom all sizes of each.
STATEMENTS_CACHED = 512

Row = Sequence[Any]


@cache
def statements() -> dict[str, str]:
    text = files(__package__).joinpath("statements.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def statement(name: str) -> str:
    return statements()[name]


@cache
def _for_rows(name: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return statement(name).replace(ROWS_MARK, ", ".join([row] * rows))


def write_rows(connection: sqlite3.Connection, name: str, rows: Sequence[Row]) -> None:
    """In as few statements as can be, without a new text to prepare for each number of rows."""
    start = 0
    while left := len(rows) - start:
        size = left if left <= EXACT_MAX else min(CHUNK_MAX, 1 << left.bit_length() - 1)
        chunk = rows[start : start + size]
        flat = [value for row in chunk for value in row]
        connection.execute(_for_rows(name, len(chunk[0]), size), flat)
        start += size


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled it back already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
