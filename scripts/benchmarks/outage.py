"""The receiver of callbacks goes down for minutes and comes back: memory, and what is still delivered.

Tickets keep coming at the same rate and answers are as large as real ones. What was open in the journal at
the moment of the return, with time left for the breaker's longest pause and a retry, has to be delivered.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Child, say, table
from benchmarks.players import Daemon, World, conducted, resident_mb, world

RSS_MAX_MB = 400.0
MAX_AGE = 290.0  # of a callback
#: The longest pause of the breaker, its trials, a ticket's own last retry delay.
ENOUGH_LEFT = 120.0
CALM = 15.0
AFTER_MAX = 330.0
#: How the receiver fails.
WAYS = {"reset": {"reset": 1.0}, "error": {"error": 1.0}, "hang": {"hang": 1.0}}
BACK = {"reset": 0.0, "error": 0.0, "hang": 0.0}


@dataclass(slots=True)
class Watch:
    """The daemon, looked at once a second."""

    daemon: Daemon
    child: Child
    began: float = field(default_factory=time.monotonic)
    samples: list[dict[str, Any]] = field(default_factory=list)
    unbalanced: int = 0
    _said: float = -30.0

    def look(self, phase: str) -> dict[str, Any]:
        status = self.daemon.status()
        self.unbalanced += not status["conservation"]["balanced"]
        one = {
            "at": round(time.monotonic() - self.began, 1),
            "phase": phase,
            "rss_mb": round(resident_mb(self.child.pid), 1),
            "state": status["state"],
            "holds": sorted({hold["reason"] for holds in status["holds"].values() for hold in holds}),
            "queue": status["queue"]["pending"] + status["queue"]["delayed"],
            "callbacks": status["callbacks"]["pending"] + status["callbacks"]["retrying"],
            "backlog_mb": round(status["callbacks"]["bytes"] / 1e6, 1),
            "journal_mb": round(self.daemon.journal_bytes() / 1e6, 1),
            "delivered": status["counters"]["delivered"],
            "dropped": sum(status["dropped"].values()),
        }
        self.samples.append(one)
        if one["at"] - self._said >= 20:
            self._said = one["at"]
            say(
                f"   {one['at']:.0f} s {phase}: {one['rss_mb']} MB, {one['state']} {one['holds']},"
                f" queue {one['queue']}, callbacks {one['callbacks']} ({one['backlog_mb']} MB),"
                f" delivered {one['delivered']}, dropped {one['dropped']}"
            )
        return one

    def keep_looking(self, phase: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look(phase)
            time.sleep(1)


def open_tickets(journal: Path, before: float) -> dict[int, float]:
    """Number and creation of each that was pulled before this moment and has not ended."""
    sql = "SELECT id, created FROM ticket WHERE outcome IS NULL AND pulled <= ?"
    return dict(_rows(journal, sql, before))


def outcomes(journal: Path) -> dict[int, tuple[str | None, float | None]]:
    return {
        number: (outcome, ended)
        for number, outcome, ended in _rows(journal, "SELECT id, outcome, ended FROM ticket")
    }


def _rows(journal: Path, sql: str, *values: float) -> list[Any]:
    connection = sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def run(seconds: float, rate: float, way: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-outage-") as name, world({"rate": rate}) as outside:
        daemon = Daemon(Path(name), outside.base, {})
        with daemon.running() as child:
            return measured(Watch(daemon, child), outside, seconds, way) | {"rate": rate}


def measured(watch: Watch, outside: World, seconds: float, way: str) -> dict[str, Any]:
    daemon = watch.daemon
    watch.keep_looking("calm", CALM)
    calm = watch.look("calm")
    outside.behave({"callback": WAYS[way]})
    down = time.time()
    watch.keep_looking("down", seconds)
    time.sleep(0.2)  # the last group of rows
    returned = time.time()
    left = open_tickets(daemon.journal, returned)
    outside.behave({"callback": BACK})
    last = watch.look("back")
    took = after(watch, returned)
    # Flowing again, alone and at its rate?
    before = outside.counts()["accepted"]
    watch.keep_looking("after", CALM)
    flowing = (outside.counts()["accepted"] - before) / CALM
    end = watch.look("after")
    ended = outcomes(daemon.journal)
    truth = outside.truth()
    result = {
        "seconds": seconds,
        "way": way,
        "peak_mb": round(watch.child.peak_mb(), 1),
        "calm_mb": calm["rss_mb"],
        "end_mb": end["rss_mb"],
        "journal_mb_max": max(one["journal_mb"] for one in watch.samples),
        "backlog_mb_max": max(one["backlog_mb"] for one in watch.samples),
        "callbacks_waiting_max": max(one["callbacks"] for one in watch.samples),
        "dropped_while_down": dict(
            Counter(
                outcome
                for outcome, at in ended.values()
                if outcome not in (None, "delivered", "duplicates") and at and down <= at <= returned
            )
        ),
        "open_at_return": open_ones(left, ended, returned),
        "seconds_until_those_ended": took,
        "delivered_in_outage": last["delivered"] - calm["delivered"],
        "delivered_per_second_after": round(flowing, 1),
        "state_at_return": last["state"],
        "holds_at_return": last["holds"],
        "state_at_end": end["state"],
        "holds_at_end": end["holds"],
        "unbalanced": watch.unbalanced,
        "world": {key: truth[key] for key in ("handed_out", "delivered", "on_time", "late", "twice")},
        "samples": watch.samples[::5],
    }
    return result | {"faults": faults_of(result)}


def after(watch: Watch, returned: float) -> float | None:
    """Until all that was open at the return has ended; None if it never did."""
    began = time.monotonic()
    while time.monotonic() - began < AFTER_MAX:
        watch.look("back")
        if not open_tickets(watch.daemon.journal, returned):
            return round(time.monotonic() - began, 1)
        time.sleep(1)
    return None


def open_ones(
    left: dict[int, float], ended: dict[int, tuple[str | None, float | None]], returned: float
) -> dict[str, Any]:
    in_time: Counter[str] = Counter()
    short: Counter[str] = Counter()
    for number, created in left.items():
        outcome = ended[number][0] or "no outcome"
        (in_time if created + MAX_AGE - returned >= ENOUGH_LEFT else short)[outcome] += 1
    return {"in_time": dict(in_time), "nearly_too_late": dict(short)}


def faults_of(result: dict[str, Any]) -> list[str]:
    faults = []
    if result["peak_mb"] >= RSS_MAX_MB:
        faults.append(f"peak memory {result['peak_mb']} MB is not under {RSS_MAX_MB:g} MB")
    undelivered = {
        outcome: number
        for outcome, number in result["open_at_return"]["in_time"].items()
        if outcome not in ("delivered", "duplicates")
    }
    if undelivered:
        faults.append(f"in time at the return and not delivered: {undelivered}")
    if result["seconds_until_those_ended"] is None:
        faults.append("tickets that were open at the return never ended")
    if result["state_at_end"] not in ("running", "degraded"):
        faults.append(f"did not recover alone: {result['state_at_end']}, held by {result['holds_at_end']}")
    if result["unbalanced"]:
        faults.append(f"the books did not balance {result['unbalanced']} times")
    if result["world"]["twice"] or result["world"]["late"]:
        faults.append(f"delivered twice {result['world']['twice']}, late {result['world']['late']}")
    return faults


def show(result: dict[str, Any]) -> None:
    print(f"receiver down ({result['way']}) for {result['seconds']:g} s at {result['rate']:g} tickets/s")
    names = (
        "calm_mb",
        "peak_mb",
        "end_mb",
        "backlog_mb_max",
        "callbacks_waiting_max",
        "journal_mb_max",
        "seconds_until_those_ended",
        "delivered_per_second_after",
        "unbalanced",
    )
    print(table(["what", "value"], [[name.replace("_", " "), str(result[name])] for name in names]))
    print(f"dropped while down: {result['dropped_while_down']}")
    print(f"open at the return, {ENOUGH_LEFT:g} s or more left: {result['open_at_return']['in_time']}")
    print(f"open at the return, less left: {result['open_at_return']['nearly_too_late']}")
    print(f"at the return {result['state_at_return']} {result['holds_at_return']}")
    print(f"at the end {result['state_at_end']} {result['holds_at_end']}; world {result['world']}")
    for fault in result["faults"]:
        print(f"!! {fault}")
    print("FAILED" if result["faults"] else "ok")


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench outage", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600, help="how long it is down (600)")
    parser.add_argument("--rate", type=float, default=200, help="tickets a second (200)")
    parser.add_argument("--way", choices=tuple(WAYS), default="reset", help="how it fails (reset)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    asked = arguments(argv)
    result = conducted("outage", lambda: run(asked.seconds, asked.rate, asked.way), show, asked.json)
    return 1 if result is None or result["faults"] else 0
