"""The daemon against a bare loop and against Node: tickets per second, CPU per ticket, memory.

Every runner does the same walk (pull, query, call back) against the same world in another process, one
after another on this machine. Throughput is what the world counted, CPU and memory what the kernel says.
The loops without control get the number in flight at which they are fastest here; the daemon runs with
its defaults.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from benchmarks.measure import (
    Child,
    clean_environment,
    end_on_signals,
    machine,
    machine_busy_seconds,
    running,
    say,
    table,
    write_json,
)
from benchmarks.players import Broken
from benchmarks.runners import PYTHON, RUNNERS, TUNED, Launch, Place, Skip, node_modules

HERE = Path(__file__).resolve().parent
WARM_UP = 4.0
START_PATIENCE = 30.0
TUNING_SECONDS = 2.5
TUNING_WARM_UP = 1.0
#: Measured on the bare loop with 100 KB pages: 23 to 97 faults a ticket, run by run, cost 30 to 150 µs of
#: system time each ticket; below 3 they do not show.
HEAP_TRIMMED = 5
MODES = ("plain", "tls")


@dataclass(slots=True)
class Row:
    size: str
    mode: str
    runner: str
    in_flight: int | None = None
    tickets_per_second: float = 0.0
    cpu_us_per_ticket: float = 0.0
    peak_mb: float = 0.0
    cpu_share: float = 0.0  # of one core, by the runner
    world_cpu_share: float = 0.0  # near 1 the world is the limit and the number is worth little
    others_cpu_share: float = 0.0  # of one core, by processes that are none of ours: the noise
    queries_per_callback: float = 0.0
    faults_per_ticket: float = 0.0  # many = the allocator trims the heap and takes it back, over and over
    notes: list[str] = field(default_factory=list)
    failed: str = ""
    rounds: list[tuple[float, float]] = field(default_factory=list)  # tickets/s and CPU of each round


@dataclass(frozen=True, slots=True)
class Server:
    child: Child
    plain: int
    tls: int
    page_bytes: int

    def base(self, mode: str) -> str:
        return f"https://127.0.0.1:{self.tls}" if mode == "tls" else f"http://127.0.0.1:{self.plain}"

    def counts(self) -> dict[str, float]:
        return json.loads(fetch(f"http://127.0.0.1:{self.plain}/counts"))

    def sample(self) -> bytes:
        return fetch(f"http://127.0.0.1:{self.plain}/sample")


def fetch(url: str) -> bytes:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise Broken(f"{parts.path} answered {answer.status}")
        return body
    finally:
        connection.close()


def parse_size(text: str) -> int:
    """100k is 100,000: the sizes in the contract are decimal."""
    return int(float(text.lower().removesuffix("k")) * 1000) if text.lower().endswith("k") else int(text)


def certificates(folder: Path) -> tuple[Path, Path]:
    """A throw-away authority and a certificate for loopback: (authority, server chain with key)."""
    import trustme

    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    ca, chain = folder / "ca.pem", folder / "server.pem"
    authority.cert_pem.write_to_path(ca)
    issued.private_key_and_cert_chain_pem.write_to_path(chain)
    return ca, chain


@contextlib.contextmanager
def world(size: int, chain: Path | None) -> Iterator[Server]:
    command = [sys.executable, str(HERE / "world.py"), "--page-bytes", str(size)]
    if chain is not None:
        command += ["--cert", str(chain)]
    with running(command, clean_environment(), stdout=-1, text=True) as child:
        ports = json.loads(child.stdout.readline() or "{}")
        if not ports:
            raise Broken(f"the world did not start: {child.last_words()}")
        yield Server(child, ports["plain"], ports.get("tls", 0), size)


@dataclass(frozen=True, slots=True)
class Reading:
    counts: dict[str, float]
    runner_cpu: float
    runner_faults: int
    world_cpu: float
    own_cpu: float
    machine_cpu: float


def read(server: Server, child: Child) -> Reading:
    if not child.alive():
        raise Broken(f"ended by itself: {child.last_words()}")
    own = os.times()
    return Reading(
        server.counts(),
        child.cpu_seconds(),
        child.page_faults(),
        server.child.cpu_seconds(),
        own.user + own.system,
        machine_busy_seconds(),
    )


def compare(row: Row, before: Reading, after: Reading) -> None:
    seconds = after.counts["at"] - before.counts["at"]
    tickets = after.counts["callbacks"] - before.counts["callbacks"]
    if not tickets:
        raise Broken("delivered nothing while it was measured")
    runner = after.runner_cpu - before.runner_cpu
    ours = runner + after.world_cpu - before.world_cpu + after.own_cpu - before.own_cpu
    row.tickets_per_second = tickets / seconds
    row.cpu_us_per_ticket = runner / tickets * 1e6
    row.cpu_share = runner / seconds
    row.world_cpu_share = (after.world_cpu - before.world_cpu) / seconds
    row.others_cpu_share = max(0.0, after.machine_cpu - before.machine_cpu - ours) / seconds
    row.faults_per_ticket = (after.runner_faults - before.runner_faults) / tickets
    row.queries_per_callback = (after.counts["queries"] - before.counts["queries"]) / tickets


def check_work(server: Server) -> None:
    """A fast runner that does not carry the page to the callback would win for nothing."""
    counts = server.counts()
    if counts["callback_bytes"] < counts["callbacks"] * server.page_bytes * 0.9:
        raise Broken("its callbacks are shorter than the page")
    body = json.loads(server.sample())
    result = json.loads(body["result"])
    if not body["url"].startswith("https://shopee.tw/") or "item" not in result["data"]:
        raise Broken("its callback is not what the contract says")
    if counts["strays"]:
        raise Broken("it asked for paths the world does not know")


def daemon_notes(launch: Launch) -> list[str]:
    """What the daemon says of itself after the run; it should be at full speed and add up."""
    if not launch.status_url:
        return []
    notes = []
    for lane in json.loads(fetch(launch.status_url))["lanes"].values():
        if not lane["conservation"]["balanced"]:
            notes.append(f"conservation is not balanced: {lane['conservation']}")
        slow = {name: stage["mode"] for name, stage in lane["stages"].items() if stage["mode"] != "normal"}
        if slow:
            notes.append(f"not at full speed: {slow}")
    return notes


def measure(server: Server, launch: Launch, row: Row, warm_up: float, seconds: float) -> None:
    with running(launch.command, launch.env, patience=launch.patience) as child:
        _wait_for_callbacks(server, child)
        time.sleep(warm_up)
        before = read(server, child)
        time.sleep(seconds)
        after = read(server, child)
        compare(row, before, after)
        row.peak_mb = child.peak_mb()
        check_work(server)
        row.notes += daemon_notes(launch)


def _wait_for_callbacks(server: Server, child: Child) -> None:
    deadline = time.monotonic() + START_PATIENCE
    while not server.counts()["callbacks"]:
        if not child.alive():
            raise Broken(f"ended by itself: {child.last_words()}")
        if time.monotonic() > deadline:
            raise Broken(f"no callback within {START_PATIENCE:.0f} s: {child.last_words()}")
        time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Plan:
    sizes: Sequence[str]
    modes: Sequence[str]
    runners: Sequence[str]
    seconds: float
    in_flight: Sequence[int]
    rounds: int = 3
    keep_heap: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    folder: Path
    ca: Path | None
    chain: Path | None
    modules: Path | None


class Bench:
    def __init__(self, plan: Plan, tools: Tools) -> None:
        self._plan = plan
        self._tools = tools

    def rows(self) -> Iterator[Row]:
        for size in self._plan.sizes:
            for mode in self._plan.modes:
                yield from self._side_by_side(size, mode)

    def _side_by_side(self, size: str, mode: str) -> list[Row]:
        """In rounds, and the middle one of each runner counts: a shared machine is 5 % faster or slower from
        one half minute to the next, which would all go into the ratio of two runs. Ratios are taken within a
        round, between neighbours in time, and the middle one counts again."""
        tuned = {runner: self._tuned(size, mode, runner) for runner in self._plan.runners}
        rounds = [
            [row if row.failed else self._measured(row) for row in tuned.values()]
            for _ in range(self._plan.rounds)
        ]
        return [middle(trials) for trials in zip(*rounds, strict=True)]

    def _tuned(self, size: str, mode: str, runner: str) -> Row:
        row = Row(size, mode, runner)
        if runner in TUNED:
            with failing(row):
                row.in_flight = self._best_in_flight(size, mode, runner)
        return row

    def _measured(self, tuned: Row) -> Row:
        row = replace(tuned, notes=[])
        with failing(row):
            self._measure(row, WARM_UP, self._plan.seconds)
        say(line(row))
        return row

    def _best_in_flight(self, size: str, mode: str, runner: str) -> int:
        """Where the loop without control is fastest, so that it is not beaten by its setting."""
        choices = self._plan.in_flight
        if len(choices) == 1:
            return choices[0]
        rates = {}
        for number in choices:
            trial = Row(size, mode, runner, in_flight=number)
            self._measure(trial, TUNING_WARM_UP, TUNING_SECONDS)
            rates[number] = trial.tickets_per_second
        say(f"  {size} {mode} {runner}: " + ", ".join(f"{n} in flight {r:,.0f}/s" for n, r in rates.items()))
        return max(rates, key=lambda number: rates[number])

    def _measure(self, row: Row, warm_up: float, seconds: float) -> None:
        with (
            tempfile.TemporaryDirectory(dir=self._tools.folder) as folder,
            world(parse_size(row.size), self._tools.chain) as server,
        ):
            place = Place(
                base=server.base(row.mode),
                folder=Path(folder),
                ca=self._tools.ca if row.mode == "tls" else None,
                in_flight=row.in_flight or 0,
                modules=self._tools.modules,
                keep_heap=self._plan.keep_heap,
            )
            measure(server, RUNNERS[row.runner](place), row, warm_up, seconds)


@contextlib.contextmanager
def failing(row: Row) -> Iterator[None]:
    try:
        yield
    except (Broken, Skip, OSError, KeyError, ValueError) as error:
        row.failed = f"{type(error).__name__}: {error}"


def middle(trials: Sequence[Row]) -> Row:
    """The trial with the median rate; one that failed tells more than those that did not."""
    failed = [row for row in trials if row.failed]
    found = failed[0] if failed else sorted(trials, key=lambda row: row.tickets_per_second)[len(trials) // 2]
    rounds = [(row.tickets_per_second, row.cpu_us_per_ticket) for row in trials]
    return replace(found, rounds=rounds)


def line(row: Row) -> str:
    what = f"{row.size} {row.mode} {row.runner}"
    if row.failed:
        return f"!! {what}: NOT MEASURED, {row.failed}"
    return f"{what}: {row.tickets_per_second:,.0f} tickets/s, {row.cpu_us_per_ticket:,.0f} µs CPU each"


HEAD = ("size", "mode", "runner", "in flight", "tickets/s", "CPU µs/ticket", "faults", "peak MB")
SHARES = ("CPU", "world", "others")  # of one core


def cells(row: Row) -> list[str]:
    if row.failed:
        return [row.size, row.mode, row.runner, *["-"] * 8]
    return [
        row.size,
        row.mode,
        row.runner,
        str(row.in_flight or "-"),
        f"{row.tickets_per_second:,.0f}",
        f"{row.cpu_us_per_ticket:,.0f}",
        f"{row.faults_per_ticket:.1f}",
        f"{row.peak_mb:,.0f}",
        f"{row.cpu_share:.0%}",
        f"{row.world_cpu_share:.0%}",
        f"{row.others_cpu_share:.0%}",
    ]


def ratios(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Ours over the others: throughput (more is better) and CPU per ticket (less is better)."""
    measured = {(row.size, row.mode, row.runner): row for row in rows if not row.failed}
    found = []
    for (size, mode, runner), row in measured.items():
        daemon = measured.get((size, mode, "daemon"))
        if daemon is None or runner == "daemon":
            continue
        # Ours is above the line: the daemon against the others, with its journal against without.
        above, below = (row, daemon) if runner == "journal" else (daemon, row)
        found.append(
            {
                "size": size,
                "mode": mode,
                "ratio": f"{above.runner}/{below.runner}",
                "tickets_per_second": ratio_of(above, below, 0),
                "cpu_us_per_ticket": ratio_of(above, below, 1),
            }
        )
    return found


def ratio_of(above: Row, below: Row, number: int) -> float:
    return median(one[number] / other[number] for one, other in zip(above.rounds, below.rounds, strict=True))


def report(rows: Sequence[Row]) -> str:
    parts = [table(HEAD + SHARES, [cells(row) for row in rows])]
    found = ratios(rows)
    if found:
        numbers = ("tickets_per_second", "cpu_us_per_ticket")
        body = [[r["size"], r["mode"], r["ratio"], *(f"{r[name]:.2f}" for name in numbers)] for r in found]
        parts.append(table(("size", "mode", "ratio", "tickets/s", "CPU/ticket"), body))
    parts += [f"{row.size} {row.mode} {row.runner}: {note}" for row in rows for note in warnings(row)]
    return "\n\n".join(parts)


def warnings(row: Row) -> list[str]:
    """Why a number should not be trusted as it stands."""
    if row.failed:
        return [f"NOT MEASURED, {row.failed}"]
    found = list(row.notes)
    if row.world_cpu_share > 0.9:
        found.append("the world was nearly at its own limit")
    if row.others_cpu_share > 0.25:
        found.append(f"other processes took {row.others_cpu_share:.0%} of a core meanwhile")
    if row.runner in PYTHON and row.faults_per_ticket > HEAP_TRIMMED:
        found.append(f"{row.faults_per_ticket:.0f} page faults per ticket: heap trimming; try --keep-heap")
    if row.queries_per_callback > 1.1:
        found.append(f"{row.queries_per_callback:.2f} queries per callback")
    return found


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench pipeline", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5, help="measured time of each run (5)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, the middle one counts (3)")
    parser.add_argument("--json", metavar="FILE", help="write the result here instead of to standard output")
    parser.add_argument("--sizes", default="100k,1k", help="page sizes (100k,1k)")
    parser.add_argument("--modes", default="plain,tls", help="plain, tls or both (plain,tls)")
    parser.add_argument("--only", default=",".join(RUNNERS), help=f"runners ({','.join(RUNNERS)})")
    parser.add_argument("--in-flight", default="64,200,500", help="tried for all but the daemon (64,200,500)")
    parser.add_argument(
        "--keep-heap",
        action="store_true",
        help="bare and daemon alike: malloc keeps freed memory, less noise",
    )
    found = parser.parse_args(argv)
    for name, allowed in (("modes", MODES), ("only", tuple(RUNNERS))):
        unknown = set(getattr(found, name).split(",")) - set(allowed)
        if unknown:
            parser.error(f"--{name}: {', '.join(sorted(unknown))} is none of {', '.join(allowed)}")
    return found


def plan_of(asked: argparse.Namespace) -> Plan:
    return Plan(
        sizes=asked.sizes.split(","),
        modes=asked.modes.split(","),
        runners=[name for name in RUNNERS if name in asked.only.split(",")],
        seconds=asked.seconds,
        in_flight=[int(number) for number in asked.in_flight.split(",")],
        rounds=max(1, asked.rounds),
        keep_heap=asked.keep_heap,
    )


def modules_for(plan: Plan) -> Path | None:
    """Fetched before anything is timed. A failure is told by each runner that needs them."""
    if not {"axios", "undici"} & set(plan.runners):
        return None
    try:
        return node_modules()
    except Skip as reason:
        say(f"!! Node is skipped: {reason}")
        return None


def main(argv: Sequence[str]) -> int:
    asked = arguments(argv)
    plan = plan_of(asked)
    end_on_signals()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as name:
        folder = Path(name)
        ca, chain = certificates(folder) if "tls" in plan.modes else (None, None)
        where = machine()
        rows = list(Bench(plan, Tools(folder, ca, chain, modules_for(plan))).rows())
    print(report(rows))
    result = {"machine": where, "plan": asdict(plan), "rows": [asdict(row) for row in rows]}
    write_json(asked.json, {**result, "ratios": ratios(rows)})
    return 1 if any(row.failed for row in rows) else 0
