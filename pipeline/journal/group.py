"""Rows that go to disk together, and how."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from pipeline.journal.answers import Kept, answer_row
from pipeline.journal.seal import Seal
from pipeline.journal.sql import Row, transaction, write_rows
from pipeline.journal.trouble import ROW_FAULTS
from pipeline.ticket import Ticket


class Entered(NamedTuple):
    """A ticket as it came; with an outcome if it ended there and then."""

    number: int
    lane: str
    ticket: Ticket
    pulled: float
    entry: str
    outcome: str | None = None
    stage: str | None = None


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
        "steps",
        "tickets",
        "written",
    )

    def __init__(self) -> None:
        self.runs: list[Row] = []
        self.tickets: list[Entered] = []
        self.steps: list[Row] = []
        self.answers: list[Kept] = []
        self.links: list[Row] = []
        self.ends: list[Row] = []
        self.forgotten: list[Row] = []
        self.minutes: list[Row] = []
        self.rows = 0
        self.bytes = 0
        self.written = False
        self.done = asyncio.Event()

    def write(self, connection: sqlite3.Connection, seal: Seal) -> int:
        """On the database's thread. Answers how many rows had to be left out."""
        tickets = ticket_rows(self.tickets, seal)
        lost = len(self.tickets) - len(tickets)
        batches = self._batches(tickets)
        try:
            with transaction(connection):
                for name, rows in batches:
                    write_rows(connection, name, rows)
        except ROW_FAULTS:
            lost += self._write_singly(connection, batches)
        return lost

    def _write_singly(self, connection: sqlite3.Connection, batches: list[tuple[str, list[Row]]]) -> int:
        """A value that SQLite cannot take costs its own row, not the group."""
        lost = 0
        with transaction(connection):
            for name, rows in batches:
                for row in rows:
                    try:
                        write_rows(connection, name, [row])
                    except ROW_FAULTS:
                        lost += 1
        return lost

    def _batches(self, tickets: list[Row]) -> list[tuple[str, list[Row]]]:
        """In the order in which rows need each other."""
        return [
            ("begin_run", self.runs),
            ("add_tickets", tickets),
            ("add_steps", self.steps),
            ("add_answers", [row for kept in self.answers if (row := answer_row(kept)) is not None]),
            ("link_answers", self.links),
            ("end_tickets", self.ends),
            ("forget_answers", self.forgotten),
            ("add_minutes", self.minutes),
        ]


def ticket_rows(tickets: list[Entered], seal: Seal) -> list[Row]:
    """Without those that a source of somebody's own made of what is no ticket."""
    rows = []
    for entered in tickets:
        try:
            rows.append(ticket_row(entered, seal))
        except (AttributeError, *ROW_FAULTS):
            continue
    return rows


def ticket_row(entered: Entered, seal: Seal) -> Row:
    number, lane, ticket, pulled, entry, outcome, stage = entered
    open_still = outcome is None
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
        entry,
        as_json(ticket.payload) if open_still else None,
        seal.close(ticket.token) if open_still else None,
        outcome,
        stage,
        None if open_still else pulled,
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
