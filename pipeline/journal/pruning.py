"""Old rows go in small steps, so that no ticket's rows wait behind a long delete.

Also the daemon's half of `vacuum`: a request left beside the database is carried out here, in small steps
too, because only one program may write.
"""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from pipeline.journal.sql import statement, transaction

DAY = 86_400
#: Pages given back in one transaction.
PAGES_STEP = 1000


@dataclass(frozen=True, slots=True)
class Pruned:
    rows: int
    more: bool  # there may be more to do at once


@dataclass(frozen=True, slots=True)
class PruneRule:
    tickets_before: float
    minutes_before: float
    rows: int
    size_max: int
    dead_before: float  # a ticket still open from before this was left behind by an earlier run
    first_answer: int  # of this run


def prune(connection: sqlite3.Connection, rule: PruneRule) -> Pruned:
    oversize = used_bytes(connection) > rule.size_max
    before = math.inf if oversize else rule.tickets_before
    with transaction(connection):
        tickets = _prune_tickets(connection, rule, before)
        values = {"first": rule.first_answer, "rows": rule.rows, "before": rule.minutes_before}
        answers = connection.execute(statement("prune_answers"), values).rowcount
        minutes = connection.execute(statement("prune_minutes"), values).rowcount
    full = max(tickets, answers, minutes) >= rule.rows
    return Pruned(tickets + answers + minutes, full)


def _prune_tickets(connection: sqlite3.Connection, rule: PruneRule, before: float) -> int:
    values: dict[str, float] = {"dead": rule.dead_before, "rows": rule.rows, "before": before}
    (mark,) = connection.execute(statement("prune_mark"), values).fetchone()
    if mark is None:
        return 0
    values["mark"] = mark
    connection.execute(statement("prune_trails"), values)
    return connection.execute(statement("prune_tickets"), values).rowcount


def used_bytes(connection: sqlite3.Connection) -> int:
    """Of the file's content: space that deleted rows left is used again first."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def request_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.vacuum")


def vacuum_step(connection: sqlite3.Connection, path: Path) -> bool:
    """One step of a requested vacuum; True if there is more to do at once."""
    request = request_file(path)
    if not request.exists():
        return False
    # A script is run to its end; `execute` would stop after the first page.
    connection.executescript(f"PRAGMA incremental_vacuum({PAGES_STEP})")
    if connection.execute("PRAGMA freelist_count").fetchone()[0]:
        return True
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    request.unlink(missing_ok=True)
    return False
