"""SIGKILL again and again under load: what is lost, delivered twice or paid twice.

The simulated world stays up while the daemon is killed and started again, at random moments and at chosen
ones: as the journal is opened, written or checkpointed, after a burst of callbacks, in the middle of a drain.
The moments are chosen by watching files and the world's counters; the daemon knows nothing of it. In the end
the world's memory and the journal file are laid side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.judging import FAULTS, Judge, Life, faults_in, read_journal
from benchmarks.measure import Child, say, table
from benchmarks.players import Daemon, World, ask, conducted, world
from pipeline.journal.limits import Limits

#: How often each way of choosing the moment comes up.
KINDS = {"random": 8, "burst": 3, "flush": 3, "start": 3, "checkpoint": 2, "drain": 1}
WORK = (0.2, 1.5)  # seconds after ready
TRAP_PATIENCE = 2.0
BURST = 12  # callbacks accepted since the trap was set
DRAIN_PATIENCE = 60.0
GROUP_SECONDS = Limits().group_seconds
GIVE_UP_AFTER = 5  # lives in a row that did not become ready by themselves

BEHAVIOUR: dict[str, Any] = {
    "duplicate_share": 0.08,
    "backlog_max": 300,
    "page_min": 1500,
    "page_max": 2500,
    "processing_share": 0.3,
    "processing_time": 0.3,
    "pull": {"latency": 0.01},
    "query": {"latency": 0.06, "error": 0.02, "truncate": 0.01},
    "callback": {"latency": 0.03, "error": 0.08, "reset": 0.02, "truncate": 0.01},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "daemon": {"drain_timeout": 10},
    "pull": {"interval": 0.2},
    "callback": {"retry_interval": 1},
}


@dataclass(slots=True)
class Reaper:
    """Starts, watches, kills."""

    daemon: Daemon
    world: World
    rng: random.Random
    lives: list[Life] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    bad_exits: list[str] = field(default_factory=list)
    opening: float = 0.3  # seconds from the journal's opening to ready, learned

    def live(self, kind: str) -> Life:
        life = Life(kind, time.time())
        child = self.daemon.start()
        try:
            if kind == "start":
                self._opened(life, child)
            elif self._begun(life, child):
                # A daemon that ends by itself meanwhile is told of as such by `_kill`.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    getattr(self, f"_{kind}")(life, child)
            else:
                self.failed.append(child.last_words() or "never became ready")
            self._kill(life, child)
        finally:
            child.stop(0)
        self.lives.append(life)
        return life

    def _kill(self, life: Life, child: Child) -> None:
        alive = child.alive()
        life.killed = time.time()
        if alive:
            os.kill(child.pid, signal.SIGKILL)
        while child.alive():
            time.sleep(0.0005)
        life.dead = time.time()
        life.clean = not alive and life.kind == "drain"
        if not alive and not life.clean:
            self.bad_exits.append(
                f"life {len(self.lives)} ({life.kind}) ended by itself: {child.last_words()}"
            )

    def _begun(self, life: Life, child: Child) -> bool:
        opened = self._wait_opened(child)
        if not self.daemon.wait_ready(child):
            return False
        life.ready = time.time()
        if opened:
            self.opening = 0.8 * self.opening + 0.2 * (life.ready - opened)
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.ask_started(life)
        return True

    def ask_started(self, life: Life) -> None:
        for event in self.daemon.events():
            if event["kind"] == "started":
                detail = event["detail"]
                life.taken_up = detail.get("recovered", 0) + detail.get("dropped", 0)
                life.maybe_paid = detail.get("maybe_paid", 0)

    def ask_balance(self, life: Life) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status = self.daemon.status()
            life.balanced = bool(status["conservation"]["balanced"])
            life.crashes = int(status["counters"]["worker_crashes"])

    def _wait_opened(self, child: Child) -> float | None:
        """When the journal's file was opened: seen in the process's own list of files."""
        folder, name = Path(f"/proc/{child.pid}/fd"), str(self.daemon.journal)
        end = time.monotonic() + TRAP_PATIENCE * 5
        while time.monotonic() < end and child.alive():
            with contextlib.suppress(OSError):
                for entry in os.listdir(folder):
                    with contextlib.suppress(OSError):
                        if os.readlink(folder / entry) == name:
                            return time.time()
            time.sleep(0.002)
        return None

    # -- the moments -------------------------------------------------------------------------------

    def _random(self, life: Life, _child: Child) -> None:
        self._work(life, self.rng.uniform(*WORK))

    def _opened(self, life: Life, child: Child) -> None:
        """While the journal is opened, checked, read back; now and then just after."""
        life.hit = self._wait_opened(child) is not None
        time.sleep(self.rng.uniform(0, 1.1 * self.opening))

    def _burst(self, life: Life, _child: Child) -> None:
        self._work(life, self.rng.uniform(0.1, 0.5))
        before = self.world.counts()["accepted"]
        life.hit = self._until(lambda: self.world.counts()["accepted"] - before >= BURST, 0.004)
        time.sleep(self.rng.uniform(0, 2 * GROUP_SECONDS))

    def _flush(self, life: Life, _child: Child) -> None:
        """A group is being written now, or has just been."""
        self._work(life, self.rng.uniform(0.1, 1.0))
        self._until_touched(life, Path(f"{self.daemon.journal}-wal"))
        time.sleep(self.rng.uniform(0, 0.006))

    def _checkpoint(self, life: Life, _child: Child) -> None:
        """The log is being carried over into the database."""
        self._work(life, self.rng.uniform(0, 0.3))
        self._until_touched(life, self.daemon.journal)
        time.sleep(self.rng.uniform(0, 0.004))

    def _drain(self, life: Life, child: Child) -> None:
        self._work(life, self.rng.uniform(*WORK) / 2)
        os.kill(child.pid, signal.SIGTERM)
        time.sleep(self.rng.uniform(0, 0.5))

    def _work(self, life: Life, seconds: float) -> None:
        time.sleep(seconds / 2)
        self.ask_balance(life)
        time.sleep(seconds / 2)

    def _until_touched(self, life: Life, file: Path) -> None:
        before = file.stat().st_mtime_ns
        life.hit = self._until(lambda: file.stat().st_mtime_ns != before, 0.0005)

    def _until(self, happened: Callable[[], bool], every: float) -> bool:
        end = time.monotonic() + TRAP_PATIENCE
        while time.monotonic() < end:
            if happened():
                return True
            time.sleep(every)
        return False


def drained(reaper: Reaper) -> None:
    """No new tickets; the last life ends everything that is open and then itself."""
    life = Life("last", time.time())
    with reaper.daemon.running() as child:
        life.ready = time.time()
        reaper.ask_started(life)
        reaper.world.behave({"rate": 0, "callback": {"error": 0, "reset": 0, "truncate": 0}})
        end = time.monotonic() + DRAIN_PATIENCE
        while time.monotonic() < end and not _all_done(reaper):
            time.sleep(0.2)
        reaper.ask_balance(life)
        ask(reaper.daemon.port, "/api/shutdown", {})
        end = time.monotonic() + DRAIN_PATIENCE
        while child.alive() and time.monotonic() < end:
            time.sleep(0.02)
        life.clean = not child.alive()
    life.killed = life.dead = time.time()
    if not life.clean:
        reaper.bad_exits.append("the last life did not end when told to")
    reaper.lives.append(life)


def _all_done(reaper: Reaper) -> bool:
    status = reaper.daemon.status()
    callbacks = status["callbacks"]
    under_way = status["queue"]["in_flight"] + callbacks["pending"] + callbacks["retrying"]
    return not under_way and not reaper.world.truth()["backlog"]


def killed(reaper: Reaper, kills: int, seconds_max: float) -> None:
    kinds = list(KINDS)
    # Every way once, then by weight.
    plan = iter(reaper.rng.sample(kinds, len(kinds)))
    began, done, said = time.monotonic(), 0, 0.0
    while done < kills and time.monotonic() - began < seconds_max:
        kind = next(plan, "") or reaper.rng.choices(kinds, list(KINDS.values()))[0]
        life = reaper.live(kind)
        done += not life.clean
        if len(reaper.failed) >= GIVE_UP_AFTER:
            return
        if time.monotonic() - said > 10 or done == kills:
            said = time.monotonic()
            counts = reaper.world.counts()
            say(
                f"   {done}/{kills} kills in {said - began:.0f} s; handed out {counts['handed']},"
                f" paid {counts['paid']}, accepted {counts['accepted']}"
            )


def run(
    kills: int, seconds_max: float, seed: int, rate: float, level: str, keep: str | None
) -> dict[str, Any]:
    with contextlib.ExitStack() as stack:
        folder = (
            Path(keep)
            if keep
            else Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-kill-")))
        )
        folder.mkdir(parents=True, exist_ok=True)
        outside = stack.enter_context(world({**BEHAVIOUR, "rate": rate}, seed))
        daemon = Daemon(folder, outside.base, {**OPTIONS, "journal": {"level": level}})
        reaper = Reaper(daemon, outside, random.Random(seed))
        began = time.monotonic()
        killed(reaper, kills, seconds_max)
        took = time.monotonic() - began
        drained(reaper)
        return told(reaper, level) | {"seconds": round(took, 1), "seed": seed, "rate": rate, "asked": kills}


def told(reaper: Reaper, level: str) -> dict[str, Any]:
    lives, truth = reaper.lives, reaper.world.truth()
    judge = Judge(lives, reaper.world.facts(), read_journal(reaper.daemon.journal), level)
    judge.judge()
    found = judge.found
    aside = sorted(file.name for file in reaper.daemon.data.glob("*.corrupt-*"))
    found["failed starts"] = len(reaper.failed)
    found["journals set aside"] = len(aside)
    found["bad exits"] = len(reaper.bad_exits)
    found["protocol errors"] = truth["protocol_errors"]
    found["bad results"] = truth["bad_results"]
    deaths = Counter(life.kind for life in lives if not life.clean)
    return {
        "level": level,
        "kills": sum(deaths.values()),
        "kills_by_moment": dict(deaths),
        "moment_missed": dict(Counter(life.kind for life in lives if not life.hit)),
        "lives_asked_for_balance": sum(life.balanced is not None for life in lives),
        "must_be_zero": {name: found[name] for name in FAULTS},
        "facts": {name: found[name] for name in sorted(found) if name not in FAULTS},
        "in_the_window": judge.window_rows(),
        "answer_to_row_ms": judge.journey_ms(),
        "group_ms": GROUP_SECONDS * 1000,
        "examples": judge.examples,
        "notes": [*reaper.failed, *reaper.bad_exits, *aside, *truth["messages"]][:20],
        "world": {
            name: truth[name] for name in ("handed_out", "paid", "delivered", "on_time", "late", "alerts")
        },
        "ok": not any(faults_in(found)),
    }


def show(result: dict[str, Any]) -> None:
    moments = ", ".join(f"{kind} {number}" for kind, number in result["kills_by_moment"].items())
    print(f"{result['kills']} kills ({moments}) in {result['seconds']} s, journal level {result['level']}")
    print(f"seed {result['seed']}\n")
    rows = [[name, str(number), "must be 0"] for name, number in result["must_be_zero"].items()]
    rows += [[name, str(number), ""] for name, number in result["facts"].items()]
    print(table(["what", "number", ""], rows))
    windows = result["in_the_window"]
    if windows:
        print(f"\nIn the window (a row waits {result['group_ms']:.0f} ms for its group, then for the disk):")
        print(
            table(
                ["done outside, not on disk", "number", "after the kill", "median ms before it", "most"],
                [
                    [name, *(str(row[of]) for of in ("number", "after_kill", "median_ms", "max_ms"))]
                    for name, row in windows.items()
                ],
            )
        )
    for name, examples in result["examples"].items():
        print(f"\n{name}:", *examples, sep="\n  ")
    if result["notes"]:
        print("\nnotes:", *result["notes"], sep="\n  ")
    print(f"\n{'ok' if result['ok'] else 'FAILED'}")


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench kill", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds-max", type=float, default=600, help="no more kills after this (600)")
    parser.add_argument("--seed", type=int, help="of the moments and of the world (drawn)")
    parser.add_argument("--rate", type=float, default=75, help="tickets a second (75)")
    parser.add_argument("--level", choices=("tickets", "answers"), default="tickets", help="of the journal")
    parser.add_argument("--keep", metavar="FOLDER", help="leave configuration and journal here")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    asked = arguments(argv)
    seed = random.randrange(1 << 31) if asked.seed is None else asked.seed
    say(f"== {asked.kills} kills, seed {seed}")
    result = conducted(
        "kill",
        lambda: run(asked.kills, asked.seconds_max, seed, asked.rate, asked.level, asked.keep),
        show,
        asked.json,
    )
    if result is None:
        return 1
    if result["kills"] < asked.kills:
        print(
            f"only {result['kills']} of {asked.kills} kills were made in {asked.seconds_max:g} s",
            file=sys.stderr,
        )
        return 1
    return 0 if result["ok"] else 1
