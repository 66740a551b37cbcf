"""After a restart: what was under way, what is still worth doing, and what was done already."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import Any

import orjson

from pipeline.journal.answers import Kept
from pipeline.journal.seal import Seal
from pipeline.journal.sql import Row, statement
from pipeline.ticket import Ticket, Verdict

ASKING = "asking"
CALLING = "calling"
MAYBE_PAID = "maybe_paid"
#: How a ticket of an earlier run ends that is not worth going on with.
RESTART = "restart"

_RESULTS = frozenset({str(Verdict.ANSWERED), str(Verdict.OFFLINE)})
_REFUSALS = frozenset({str(Verdict.CREDIT), str(Verdict.AUTH)})


class Paid(StrEnum):
    NO = "no"
    POSSIBLY = "possibly"  # the end was sudden: a query may have gone out that no row tells of
    MAYBE = "maybe"  # a query was sent and its answer is not known
    YES = "yes"  # the answer came, but was not kept


@dataclass(frozen=True, slots=True)
class Unanswered:
    ticket: Ticket
    paid: Paid

    @property
    def maybe_paid(self) -> bool:
        return self.paid is not Paid.NO


@dataclass(frozen=True, slots=True)
class Undelivered:
    ticket: Ticket
    kept: Kept  # on disk: `fetch` brings it back when it is due
    maybe_delivered: bool  # a callback was sent and its answer is not known


@dataclass(frozen=True, slots=True)
class Recovered:
    clean: bool = True  # the last run ended by itself
    undelivered: list[Undelivered] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    dropped: int = 0  # too late by now
    dropped_paid: int = 0  # of these, with a query that was or may have been paid
    processed: list[str] = field(default_factory=list)  # delivered keys, newest last

    @property
    def maybe_paid(self) -> list[str]:
        return [found.ticket.trace_id for found in self.unanswered if found.maybe_paid]


@dataclass(frozen=True, slots=True)
class Found:
    """A ticket that had not ended when the last run did."""

    number: int
    ticket: Ticket | None  # None if its token cannot be read any more
    pulled: float
    entry: str
    answer: int | None
    answer_size: int
    paid: Paid
    maybe_delivered: bool


@dataclass(frozen=True, slots=True)
class Reading:
    found: list[Found]
    processed: list[str]


def read(
    connection: sqlite3.Connection, lane: str, before: int, keys_max: int, clean: bool, seal: Seal
) -> Reading:
    connection.execute("BEGIN")
    try:
        rows = connection.execute(statement("open_tickets"), (lane, before)).fetchall()
        steps = _by_ticket(connection.execute(statement("open_trails"), (lane, before)))
        keys = connection.execute(statement("delivered_keys"), (lane, before, keys_max)).fetchall()
    finally:
        connection.execute("COMMIT")
    found = [_found(row, steps.get(row[0], []), clean, seal) for row in rows]
    return Reading(found, [key for (key,) in reversed(keys)])


def open_by_lane(connection: sqlite3.Connection, before: int) -> dict[str, int]:
    return dict(connection.execute(statement("open_by_lane"), (before,)).fetchall())


def _by_ticket(rows: Iterable[Any]) -> dict[int, list[str]]:
    """What happened to each, in order."""
    return {
        number: [what for _, steps in group for _, _, what, _ in orjson.loads(steps)]
        for number, group in groupby(rows, itemgetter(0))
    }


def _found(row: Row, steps: list[str], clean: bool, seal: Seal) -> Found:
    number, trace, key, stamp, created, priority, pulled, entry, payload, sealed, answer, size = row
    token = seal.open(sealed)
    ticket = None
    if token is not None:
        ticket = Ticket(key, trace, stamp, json.loads(payload or "{}"), token, priority, created)
        ticket.queries = steps.count(ASKING) - sum(step in _REFUSALS for step in steps)
        ticket.callbacks = steps.count(CALLING)
    paid = paid_by(steps)
    if paid is Paid.NO and not clean:
        paid = Paid.POSSIBLY
    calling = steps[-1:] == [CALLING]
    return Found(number, ticket, pulled, entry, answer, size or 0, paid, calling)


def paid_by(steps: list[str]) -> Paid:
    """What the steps tell of the money: the last word about the last query counts."""
    paid = Paid.NO
    for step in steps:
        if step in _RESULTS:
            return Paid.YES
        paid = Paid.MAYBE if step in (ASKING, MAYBE_PAID) else Paid.NO
    return paid


@dataclass(frozen=True, slots=True)
class Judged:
    late: list[Found] = field(default_factory=list)
    alive: list[tuple[int, Ticket, Found]] = field(default_factory=list)
    undelivered: list[Undelivered] = field(default_factory=list)
    unanswered: list[Unanswered] = field(default_factory=list)
    shared: list[tuple[int, int]] = field(default_factory=list)  # an answer, and a ticket that shares it now


@dataclass(frozen=True, slots=True)
class Ages:
    """How old a ticket may be to be worth going on with."""

    first_query: float
    later_query: float
    callback: float


def judge(found: Sequence[Found], now: float, ages: Ages) -> Judged:
    """What is in time goes on where it stopped; an answer may be older than a ticket without one.

    An answer is everybody's who asked for its key, also of those who came too late to be written beside it.
    """
    judged = Judged()
    by_key = {one.ticket.key: one for one in found if one.ticket is not None and one.answer is not None}
    asked = {one.ticket.key for one in found if one.ticket is not None and one.ticket.queries}
    kept_by_number: dict[int, Kept] = {}
    for one in found:
        ticket = one.ticket
        if ticket is None:
            judged.late.append(one)
            continue
        # From the future if the clock was set back between the runs: it would live that much longer.
        ticket.created = min(ticket.created, now)
        source = one if one.answer is not None else by_key.get(ticket.key, one)
        first_or_later = ages.later_query if ticket.key in asked else ages.first_query
        if ticket.age(now) > (first_or_later if source.answer is None else ages.callback):
            judged.late.append(one)
            continue
        judged.alive.append((one.number, ticket, one))
        if source.answer is None:
            judged.unanswered.append(Unanswered(ticket, one.paid))
        else:
            new = Kept(source.answer, None, source.answer_size, None)
            kept = kept_by_number.setdefault(source.answer, new)
            judged.undelivered.append(Undelivered(ticket, kept, one.maybe_delivered))
            if source is not one:
                judged.shared.append((source.answer, one.number))
    return judged
