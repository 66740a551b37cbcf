"""Versions of the database: numbered SQL files, each applied once, whole or not at all."""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from importlib.resources import files

from pipeline.errors import ConfigError
from pipeline.journal.sql import transaction


@cache
def migrations() -> dict[int, str]:
    """Version → SQL, from `schema/001_name.sql` on, without a gap."""
    found = {}
    for file in files(__package__).joinpath("schema").iterdir():
        if match := re.fullmatch(r"(\d{3})_\w+\.sql", file.name):
            found[int(match[1])] = file.read_text(encoding="utf-8")
    return dict(sorted(found.items()))


def newest() -> int:
    return max(migrations())


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(name: str, found: int) -> None:
    if found > newest():
        raise ConfigError(
            f"journal: {name} has schema version {found}, this program knows versions up to {newest()}: "
            "install the newer program, or move the file away"
        )


def migrate(connection: sqlite3.Connection, name: str, up_to: int | None = None) -> None:
    found = version(connection)
    refuse_newer(name, found)
    for number, text in migrations().items():
        if found < number <= (up_to or newest()):
            with transaction(connection):
                for statement in _split(text):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {number}")


def _split(text: str) -> list[str]:
    """`executescript` would commit behind our back, and half a migration would stay after a crash."""
    parts, current = [], ""
    for line in text.splitlines(keepends=True):
        current += line
        if sqlite3.complete_statement(current):
            parts.append(current)
            current = ""
    return parts
