"""The SQL of this package, by name."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

Row = Sequence[Any]


@cache
def statements() -> dict[str, str]:
    parts = re.split(r"^-- name: (\w+)\n", _text("statements.sql"), flags=re.MULTILINE)[1:]
    return {name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def statement(name: str) -> str:
    return statements()[name]


def open_inbox(connection: sqlite3.Connection) -> None:
    """Of the connection, not of the file: it belongs to the program's version."""
    connection.executescript(_text("inbox.sql"))


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


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
