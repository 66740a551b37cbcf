"""Rows that go to disk together, and how."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import zlib
from collections.abc import Mapping
from typing import Any

import orjson

from pipeline.journal.answers import Kept, packed
from pipeline.journal.seal import Seal
from pipeline.journal.sql import Row, statement, transaction
from pipeline.journal.trouble import ROW_FAULTS
from pipeline.ticket import Ticket


class Group:
    __slots__ = (
        "answers",
        "bytes",
        "done",
        "ends",
        "forgotten",
        "links",
        "minutes",
        "rows",
        "runs",
        "tickets",
        "trails",
        "written",
    )

    def __init__(self) -> None:
        self.runs: list[Row] = []
        self.tickets: list[Row] = []
        self.trails: list[Row] = []
        self.answers: list[Kept] = []
        self.links: list[Row] = []
        self.ends: list[Row] = []
        self.forgotten: list[int] = []
        self.minutes: list[Row] = []
        self.rows = 0
        self.bytes = 0
        self.written = False
        self.done = asyncio.Event()

    def mark_written(self) -> None:
        """All of it is on disk. Tickets and answers point here to ask for just that, some for minutes:
        the rows and their 100 KB answers must not stay in memory for it."""
        self.written = True
        self.done.set()
        self.answers.clear()
        for rows in self._sections().values():
            rows.clear()

    def write(self, connection: sqlite3.Connection) -> int:
        """On the database's thread. Answers how many rows had to be left out."""
        sections = self._sections()
        answers, bodies = packed(self.answers)
        try:
            connection.execute(statement("write"), _documents(sections | {"answers": answers}, bodies))
        except ROW_FAULTS:
            return self._write_singly(connection, sections, answers, bodies)
        return 0

    def _write_singly(
        self,
        connection: sqlite3.Connection,
        sections: dict[str, list[Any]],
        answers: list[Row],
        bodies: bytes,
    ) -> int:
        """A value that SQLite cannot take costs its own row, not the group."""
        lost = 0
        with transaction(connection):
            for name, rows in {"answers": answers, **sections}.items():
                for row in rows:
                    try:
                        connection.execute(statement("write"), _documents({name: [row]}, bodies))
                    except ROW_FAULTS:
                        lost += 1
        return lost

    def _sections(self) -> dict[str, list[Any]]:
        """In the order in which rows need each other."""
        return {
            "runs": self.runs,
            "tickets": self.tickets,
            "trails": self.trails,
            "links": self.links,
            "ends": self.ends,
            "forgotten": self.forgotten,
            "minutes": self.minutes,
        }


_NOTHING = dict.fromkeys(
    ("runs", "tickets", "trails", "answers", "bodies", "links", "ends", "forgotten", "minutes")
)


def _documents(sections: Mapping[str, list[Any]], bodies: bytes) -> dict[str, str | bytes | None]:
    written = {name: orjson.dumps(rows).decode() for name, rows in sections.items() if rows}
    return {**_NOTHING, **written, "bodies": bodies}


def open_row(number: int, lane: str, ticket: Ticket, pulled: float, entry: str, seal: Seal) -> Row:
    """A ticket that goes on.

    Made on the loop's own thread: the database's would have to take each part of the ticket from the other
    core while the loop wants the interpreter back. That made 4 µs of work cost 30 (100 KB answers).
    """
    return (
        *_told(number, lane, ticket, pulled),
        entry,
        as_json(ticket.payload),
        seal.close(ticket.token),
        None,
        None,
        None,
    )


def ended_row(number: int, lane: str, ticket: Ticket, at: float, outcome: str, stage: str) -> Row:
    """A ticket that ended where it came in: neither payload nor token is needed any more."""
    return (*_told(number, lane, ticket, at), "", None, None, outcome, stage, at)


def _told(number: int, lane: str, ticket: Ticket, pulled: float) -> Row:
    return (
        number,
        lane,
        ticket.trace_id,
        ticket.key,
        checksum(ticket.trace_id),
        checksum(item_of(ticket.key)),
        ticket.stamp,
        ticket.created,
        ticket.priority,
        pulled,
    )


def checksum(text: str) -> int:
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def item_of(key: str) -> str:
    """shop:item of shop:item:country; another kind of key as it is."""
    return key.rpartition(":")[0] or key


def as_json(value: Mapping[str, Any]) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):  # a source of somebody's own: large integers, its own types
        return json.dumps(value, default=str)
