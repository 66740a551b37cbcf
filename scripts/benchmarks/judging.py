"""What the kills cost, judged from three witnesses: the world's memory, the journal file, the bench's clock.

Rows reach the disk in the order in which they were made, so the newest row of a life that is on disk (its
`horizon`) tells what must be there: everything older. A thing that happened outside before the horizon and is
done again was a fault; one that happened after it could not be known to the next life and is `in the window`.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pipeline.journal.recovery import CALLING, Paid, paid_by

#: From the world's doing to the daemon's row about it: both loops and the way between them, which takes a
#: thousandth of this unless the machine has other things to do.
SLACK = 0.5
#: No process of ours does anything outside this soon after its start.
STARTING = 0.2
#: Further back than this a kill is no excuse, whatever the disk has.
WINDOW_MAX = 1.0
EXAMPLES = 5

#: Each must be 0; any other number is a fact, not a fault.
FAULTS = (
    "lost after journalled",
    "delivered twice",
    "paid twice",
    "not journalled",
    "journalled twice",
    "recovered wrongly",
    "unbalanced",
    "failed starts",
    "worker crashes",
    "journals set aside",
    "bad exits",
    "protocol errors",
    "bad results",
)


@dataclass(slots=True)
class Life:
    """One process of the daemon, from its start to its end."""

    kind: str
    spawned: float
    killed: float = 0.0  # just before the signal
    dead: float = 0.0
    ready: float | None = None
    clean: bool = False  # it ended by itself
    hit: bool = True  # the chosen moment came
    balanced: bool | None = None  # None if nobody could ask
    taken_up: int | None = None  # what its recovery said: recovered and dropped
    maybe_paid: int = 0
    crashes: int = 0


class Ticket(NamedTuple):
    number: int
    trace: str
    key: str
    pulled: float
    entry: str  # empty if it was never taken in
    outcome: str | None
    ended: float | None

    def open_at(self, moment: float) -> bool:
        return self.pulled <= moment and (self.ended is None or self.ended > moment)


class Step(NamedTuple):
    at: float
    stage: str
    what: str


@dataclass(slots=True)
class Journalled:
    tickets: list[Ticket] = field(default_factory=list)
    steps: Mapping[int, list[Step]] = field(default_factory=dict)

    def times(self) -> list[float]:
        found = [ticket.pulled for ticket in self.tickets]
        found += [ticket.ended for ticket in self.tickets if ticket.ended is not None]
        found += [step.at for steps in self.steps.values() for step in steps]
        return sorted(found)


def read_journal(path: Path) -> Journalled:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        columns = "id, trace_id, key, pulled, entry, outcome, ended"
        tickets = [Ticket(*row) for row in connection.execute(f"SELECT {columns} FROM ticket ORDER BY id")]
        steps: defaultdict[int, list[Step]] = defaultdict(list)
        for number, at, stage, what in connection.execute(
            "SELECT ticket, value ->> 0, value ->> 1, value ->> 2 FROM trail, json_each(steps) ORDER BY 1, 2"
        ):
            steps[number].append(Step(at / 1e6, stage, what))
    finally:
        connection.close()
    return Journalled(tickets, steps)


class Judge:
    def __init__(
        self, lives: Sequence[Life], facts: Mapping[str, Any], journal: Journalled, level: str
    ) -> None:
        self._lives = lives
        self._facts = facts
        self._journal = journal
        self._level = level
        self._births = [life.spawned + STARTING for life in lives]
        times = journal.times()
        self._horizons = [_horizon(life, times) for life in lives]
        self._by_trace = {ticket.trace: ticket for ticket in journal.tickets}
        self._by_key: defaultdict[str, list[Ticket]] = defaultdict(list)
        for ticket in journal.tickets:
            self._by_key[ticket.key].append(ticket)
        self._accepted = _moments(facts["accepted"])
        self.found: Counter[str] = Counter(dict.fromkeys(FAULTS, 0))
        self.examples: dict[str, list[str]] = {}
        self.windows: defaultdict[str, list[float]] = defaultdict(list)

    def judge(self) -> None:
        self._lost()
        self._not_journalled()
        for trace, moments in self._accepted.items():
            for (before, cut_off), (after, _) in pairwise(moments):
                self._delivered_again(trace, before, cut_off, after)
        for key, moments in _moments(self._facts["payments"]).items():
            for (before, cut_off), (after, _) in pairwise(moments):
                self._paid_again(key, before, cut_off, after)
        self._lives_judged()

    # -- nothing journalled is lost ----------------------------------------------------------------

    def _lost(self) -> None:
        traces = Counter(ticket.trace for ticket in self._journal.tickets)
        for trace, number in traces.items():
            if number > 1:
                self._fault("journalled twice", f"{trace} has {number} rows")
        for ticket in self._journal.tickets:
            self.found["journalled"] += 1
            reason = self._loss(ticket)
            if reason:
                self._fault("lost after journalled", f"{ticket.trace}: {reason}")
            elif ticket.outcome not in (None, "delivered") and ticket.trace not in self._accepted:
                self.found[f"ended as {ticket.outcome}"] += 1

    def _loss(self, ticket: Ticket) -> str:
        if ticket.outcome is None:
            return "no outcome"
        if ticket.trace in self._accepted:
            return ""
        if ticket.outcome == "delivered":
            return "delivered by its row, unknown to the receiver"
        if ticket.outcome == "duplicates" and ticket.entry:
            return f"taken in ({ticket.entry}), then ended as a duplicate"
        return ""

    def _not_journalled(self) -> None:
        for trace, (_key, _created, at) in self._facts["handed"].items():
            if trace in self._by_trace:
                continue
            if self._in_window(at, "handed out"):
                self.found["handed out in the window, not journalled"] += 1
            else:
                self._fault("not journalled", f"{trace} was handed out {self._before_kill(at)}")

    # -- nothing is done twice ---------------------------------------------------------------------

    def _delivered_again(self, trace: str, before: float, cut_off: bool, after: float) -> None:
        if cut_off:
            self.found["delivered again, answer cut off by the receiver"] += 1
            return
        life, ticket = self._life(before), self._by_trace.get(trace)
        said = ticket is not None and ticket.outcome == "delivered" and (ticket.ended or 0) <= after
        if life == self._life(after):
            self._fault("delivered twice", f"{trace} in one life")
        elif said:
            self._fault("delivered twice", f"{trace}: journalled as delivered, then delivered again")
        elif self._in_window(before, "delivered"):
            self.found["delivered again, in the window"] += 1
        else:
            self._fault("delivered twice", f"{trace}: accepted {self._before_kill(before)}")

    def _paid_again(self, key: str, before: float, cut_off: bool, after: float) -> None:
        if cut_off:
            self.found["paid again, answer cut off by the provider"] += 1
            return
        life = self._life(before)
        # What was known at the last end before the second payment; the first may be several lives ago.
        dead = self._lives[max(life, self._life(after) - 1)].dead
        tickets = [ticket for ticket in self._by_key[key] if ticket.pulled <= after]
        waiting = [ticket for ticket in tickets if ticket.open_at(dead)]
        if life != self._life(after) and waiting:
            self._paid_and_waiting(key, before, dead, waiting)
        elif any(t.outcome != "delivered" and t.ended and t.ended <= after and t.entry for t in tickets):
            self.found["paid again, the earlier ticket was dropped"] += 1
        elif life == self._life(after):
            self._fault("paid twice", f"{key} in one life")
        elif any(ticket.outcome == "delivered" and ticket.pulled <= dead for ticket in tickets):
            self._fault("paid twice", f"{key}: journalled as delivered, then paid again")
        elif self._in_window(before, "paid"):
            self.found["paid again, in the window"] += 1
        else:
            self._fault("paid twice", f"{key}: paid {self._before_kill(before)}, nothing in the journal")

    def _paid_and_waiting(self, key: str, before: float, dead: float, waiting: list[Ticket]) -> None:
        """The key's tickets that were open on disk when the life ended that had paid: what did it know?"""
        known = [[step for step in self._journal.steps.get(t.number, []) if step.at <= dead] for t in waiting]
        paid = {paid_by([step.what for step in steps]) for steps in known}
        if Paid.YES in paid:
            kept = self._level == "answers" or any(_kept(steps) for steps in known)
            if kept:
                self._fault("paid twice", f"{key}: its answer was in the journal")
            else:
                self.found["paid again, listed: answer not kept"] += 1
        elif Paid.MAYBE in paid:
            self.found["paid again, listed: query was sent"] += 1
        elif self._in_window(before, "paid"):
            self.found["paid again, listed: no row could tell"] += 1
        else:
            self._fault("paid twice", f"{key}: paid {self._before_kill(before)}, its rows tell of no query")

    # -- every life --------------------------------------------------------------------------------

    def _lives_judged(self) -> None:
        for number, life in enumerate(self._lives):
            self.found["unbalanced"] += life.balanced is False
            self.found["worker crashes"] += life.crashes
            self.found["maybe paid, listed"] += life.maybe_paid
            if life.taken_up is None or number == 0:
                continue
            dead = self._lives[number - 1].dead
            left = sum(ticket.open_at(dead) for ticket in self._journal.tickets)
            self.found["taken up"] += life.taken_up
            if left != life.taken_up:
                self._fault("recovered wrongly", f"life {number}: {left} open, {life.taken_up} taken up")

    def _life(self, moment: float) -> int:
        return max(0, bisect_right(self._births, moment) - 1)

    def _in_window(self, moment: float, what: str) -> bool:
        number = self._life(moment)
        life = self._lives[number]
        if life.clean or moment < self._horizons[number] - SLACK or life.killed - moment > WINDOW_MAX:
            return False
        self.windows[what].append(life.killed - moment)
        return True

    def _before_kill(self, moment: float) -> str:
        number = self._life(moment)
        life = self._lives[number]
        behind = (life.killed - moment) * 1000
        horizon = (life.killed - self._horizons[number]) * 1000
        how = "clean end" if life.clean else f"kill ({life.kind})"
        return f"{behind:.0f} ms before the {how} of life {number}, the last row {horizon:.0f} ms before it"

    def _fault(self, name: str, example: str) -> None:
        self.found[name] += 1
        examples = self.examples.setdefault(name, [])
        if len(examples) < EXAMPLES:
            examples.append(example)

    # -- told --------------------------------------------------------------------------------------

    def window_rows(self) -> dict[str, dict[str, float]]:
        """How long before the kill the world had done what the disk did not know, in milliseconds.

        Some of it was done after the kill: the request was under way, and nobody was left to hear the answer.
        """
        return {
            name: {
                "number": len(found),
                "after_kill": sum(lead <= 0 for lead in found),
                "median_ms": round(median(found) * 1000, 1),
                "max_ms": round(max(found) * 1000, 1),
            }
            for name, found in sorted(self.windows.items())
        }

    def journey_ms(self) -> dict[str, float]:
        """From the receiver's yes to the row about it, where nothing came between."""
        found = sorted(
            (ticket.ended or 0) - moments[-1][0]
            for ticket in self._journal.tickets
            if ticket.outcome == "delivered" and (moments := self._accepted.get(ticket.trace))
        )
        if not found:
            return {}
        return {
            f"p{n}": round(found[min(len(found) - 1, len(found) * n // 100)] * 1000, 1) for n in (50, 99, 100)
        }


def _kept(steps: Iterable[Step]) -> bool:
    """Once a callback has failed, its answer is in the journal at any level."""
    return any(step.stage == "callback" and step.what not in (CALLING, "delivered") for step in steps)


def _horizon(life: Life, times: Sequence[float]) -> float:
    first, last = bisect_left(times, life.spawned), bisect_right(times, life.dead)
    return times[last - 1] if last > first else life.spawned


def _moments(entries: Iterable[Sequence[Any]]) -> dict[str, list[tuple[float, bool]]]:
    found: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    for name, at, cut_off in entries:
        found[name].append((at, cut_off))
    return found


def faults_in(found: Mapping[str, int]) -> Iterator[str]:
    return (name for name in FAULTS if found.get(name))
