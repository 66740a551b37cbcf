"""What became of a ticket: each step with its time, stage and attempt."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain, islice

import orjson

from pipeline.events import Step
from pipeline.journal.group import checksum, item_of
from pipeline.journal.sql import Row, statement

#: The newest tickets of one trace or item, and the steps of one ticket, that are told.
TICKETS_MAX = 100
STEPS_MAX = 1000
MICROSECONDS = 1_000_000


def by_trace(connection: sqlite3.Connection, trace_id: str) -> list[Step]:
    wanted = (checksum(trace_id), trace_id, TICKETS_MAX)
    return _told(connection, connection.execute(statement("tickets_by_trace"), wanted).fetchall())


def by_item(connection: sqlite3.Connection, shop_id: str, item_id: str) -> list[Step]:
    item = f"{shop_id}:{item_id}"
    escaped = item.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    wanted = (checksum(item), item, f"{escaped}:%", TICKETS_MAX)
    rows = connection.execute(statement("tickets_by_item"), wanted).fetchall()
    return _told(connection, [row for row in rows if item_of(row[3]) == item or row[3] == item])


def _told(connection: sqlite3.Connection, tickets: list[Row]) -> list[Step]:
    """Oldest first; a ticket's steps stay together."""
    steps: list[Step] = []
    for row in reversed(tickets):
        number, lane, trace_id, key, created, pulled, entry, outcome, stage, ended = row

        def step(
            at: float,
            stage: str,
            what: str,
            attempt: int = 0,
            who: tuple[str, str, str, float] = (lane, trace_id, key, created),
        ) -> Step:
            lane, trace_id, key, created = who
            return Step(at, lane, stage, trace_id, key, what, at - created, attempt)

        if entry:
            steps.append(step(pulled, "pull", entry))
        attempt = 0
        for at, step_stage, what, attempt in _steps_of(connection, number):
            steps.append(step(at / MICROSECONDS, step_stage, what, attempt))
        if outcome is not None:
            steps.append(step(ended, stage, outcome, attempt))
    return steps


def _steps_of(connection: sqlite3.Connection, number: int) -> Iterator[tuple[int, str, str, int]]:
    trails = connection.execute(statement("trails_of"), (number, STEPS_MAX))
    return islice(chain.from_iterable(orjson.loads(steps) for (steps,) in trails), STEPS_MAX)
