"""Minutes of the day: kept for charts that survive a restart, and added up for a day's report.

A minute is a mapping of sections, each a mapping of names to numbers. How minutes are put together depends
on the section: what was counted in `counters`, `holds` (seconds held) and `events` is added up, of
`latencies` the worst counts, anything else (rates, depths) is averaged.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import orjson

from pipeline.journal.sql import statement
from pipeline.ticket import DROPPED

MINUTE = 60
SUMMED = frozenset({"counters", "holds", "events"})
WORST = frozenset({"latencies"})
HOLDS_TOLD = 5
#: A minute ends a little late, each a little later; with one missing between them two are 120 s apart.
GAP = 1.5 * MINUTE

Minute = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class LongHold:
    reason: str
    began: int  # the minute it was first seen in
    seconds: float


@dataclass(frozen=True, slots=True)
class LaneReport:
    delivered: int = 0
    rejected: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # by reason, the frequent first
    paid: int = 0
    spent: float = 0.0
    longest_holds: tuple[LongHold, ...] = ()

    @property
    def cost_per_delivery(self) -> float | None:
        return self.spent / self.delivered if self.delivered else None


def minute_row(lane: str, at: float, data: Minute) -> tuple[str, float, str]:
    """By the millisecond: a minute with a restart in it has two parts, and both count.

    The last, short one may end in the same second as the whole one before it.
    """
    return lane, round(at, 3), orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS).decode()


def read_history(
    connection: sqlite3.Connection, lane: str, since: float, until: float, step: int
) -> list[dict[str, Any]]:
    """One entry for each `step` seconds that has minutes, oldest first."""
    step = max(MINUTE, step)
    rows = connection.execute(statement("minutes"), (lane, since, until))
    return [
        {"at": at * step, **merged(orjson.loads(data) for _, data in group)}
        for at, group in groupby(rows, lambda row: int(row[0]) // step)
    ]


def merged(minutes: Iterable[Minute]) -> dict[str, dict[str, float]]:
    seen: dict[str, dict[str, list[float]]] = {}
    for minute in minutes:
        for section, values in minute.items():
            names = seen.setdefault(section, {})
            for name, value in values.items():
                if value is not None:
                    names.setdefault(name, []).append(value)
    return {
        section: {name: _put_together(section, values) for name, values in names.items()}
        for section, names in seen.items()
    }


def _put_together(section: str, values: list[float]) -> float:
    if section in SUMMED:
        return sum(values)
    return max(values) if section in WORST else sum(values) / len(values)


def read_report(connection: sqlite3.Connection, since: float, until: float) -> dict[str, LaneReport]:
    rows = connection.execute(statement("minutes_of_all"), (since, until)).fetchall()
    return {
        lane: lane_report([(at, orjson.loads(data)) for _, at, data in group])
        for lane, group in groupby(rows, lambda row: str(row[0]))
    }


def lane_report(minutes: list[tuple[float, Minute]]) -> LaneReport:
    counters = merged(data for _, data in minutes).get("counters", {})
    paid = int(counters.get("answered", 0) + counters.get("offline", 0))
    dropped = {str(reason): int(counters.get(reason, 0)) for reason in DROPPED}
    return LaneReport(
        delivered=int(counters.get("delivered", 0)),
        rejected=int(counters.get("rejected", 0)),
        dropped={name: n for name, n in sorted(dropped.items(), key=lambda each: (-each[1], each[0])) if n},
        paid=paid,
        spent=counters.get("spent", paid),
        longest_holds=longest_holds(minutes),
    )


def longest_holds(minutes: list[tuple[float, Minute]]) -> tuple[LongHold, ...]:
    """A hold seen in minutes that follow each other is one hold."""
    running: dict[str, LongHold] = {}
    ended: list[LongHold] = []
    last = 0.0
    for at, data in minutes:
        holds = data.get("holds", {})
        over = [name for name in running if at - last > GAP or not holds.get(name)]
        ended += [running.pop(reason) for reason in over]
        for reason, seconds in holds.items():
            if seconds:
                before = running.get(reason, LongHold(reason, int(at) // MINUTE * MINUTE, 0.0))
                running[reason] = LongHold(reason, before.began, before.seconds + seconds)
        last = at
    every = sorted([*ended, *running.values()], key=lambda hold: -hold.seconds)
    return tuple(every[:HOLDS_TOLD])
