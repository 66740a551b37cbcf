"""Hours in small: memory, descriptors and threads of the daemon under steady load, first third against last.

The daemon runs with its journal against the simulated world in another process. After the warm-up nothing may
grow but what is kept on purpose: the journal's file, and the processed keys up to their bound.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import Child, say, table
from benchmarks.players import Broken, Daemon, conducted, descriptors, resident_mb, threads, world

WARM_UP_MAX = 60.0
GROWTH_SHARE = 0.10
GROWTH_MB = 10.0
#: Connections come and go with the load: so many more are no leak.
DESCRIPTORS_MORE = 10
KEPT_UP = 0.9  # of the rate, or it was no soak at that rate
FAULTS = ("twice", "late", "protocol_errors", "bad_results", "unknown", "wrong_token")


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    rss_mb: float
    descriptors: int
    threads: int
    tasks: int | None
    journal_mb: float
    in_flight: int
    delivered: int


@dataclass(frozen=True, slots=True)
class Trend:
    name: str
    first: float
    last: float
    allowed: float | None  # None: may grow

    @property
    def growing(self) -> bool:
        return self.allowed is not None and self.last > self.allowed

    @property
    def verdict(self) -> str:
        if self.allowed is None:
            return "kept on purpose" if self.last > self.first else "flat"
        return "GROWING" if self.growing else "flat"


def tasks_of(port: int) -> int | None:
    """asyncio's tasks, where the daemon tells."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        found = re.search(r"^\w*asyncio\w*tasks\w* (\d+)", answer.read().decode(), re.MULTILINE)
    return int(found[1]) if found else None


def sample(daemon: Daemon, child: Child, began: float) -> Sample:
    status = daemon.status()
    if not status["conservation"]["balanced"]:
        raise Broken(f"the books do not balance: {status['conservation']}")
    return Sample(
        round(time.monotonic() - began, 1),
        round(resident_mb(child.pid), 1),
        descriptors(child.pid),
        threads(child.pid),
        tasks_of(daemon.port),
        round(daemon.journal_bytes() / 1e6, 1),
        status["queue"]["in_flight"],
        status["counters"]["delivered"],
    )


def trends(samples: Sequence[Sample]) -> list[Trend]:
    third = max(1, len(samples) // 3)

    def medians(name: str) -> tuple[float, float] | None:
        values = [getattr(one, name) for one in samples]
        if None in values:
            return None
        return median(values[:third]), median(values[-third:])

    found = []
    for name, share, more in (
        ("rss_mb", GROWTH_SHARE, GROWTH_MB),
        ("descriptors", 0.0, DESCRIPTORS_MORE),
        ("threads", 0.0, 0),
        ("tasks", GROWTH_SHARE, 20),
        ("journal_mb", None, 0),
    ):
        pair = medians(name)
        if pair is not None:
            first, last = pair
            found.append(Trend(name, first, last, None if share is None else first * (1 + share) + more))
    return found


def run(seconds: float, rate: float, every: float) -> dict[str, Any]:
    warm_up = min(WARM_UP_MAX, seconds / 5)
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as name, world({"rate": rate}) as outside:
        daemon = Daemon(Path(name), outside.base, {})
        with daemon.running() as child:
            samples = sampled(daemon, child, seconds, every)
            peak = child.peak_mb()
            cpu = child.cpu_seconds()
        truth = outside.truth()
    warm = [one for one in samples if one.at >= warm_up]
    found = trends(warm)
    first, last = warm[0], warm[-1]
    achieved = (last.delivered - first.delivered) / (last.at - first.at)
    faults = {fault: truth[fault] for fault in FAULTS}
    return {
        "seconds": seconds,
        "rate": rate,
        "warm_up": warm_up,
        "delivered_per_second": round(achieved, 1),
        "peak_mb": round(peak, 1),
        "cpu_share": round(cpu / samples[-1].at, 2),
        "trends": [asdict(trend) | {"verdict": trend.verdict} for trend in found],
        "tasks": "measured" if first.tasks is not None else "not told by /metrics: skipped",
        "world": {**faults, "delivered": truth["delivered"], "handed_out": truth["handed_out"]},
        "samples": [asdict(one) for one in samples],
        "ok": not any(trend.growing for trend in found) and not any(faults.values()),
        "kept_up": achieved >= KEPT_UP * rate,
    }


def sampled(daemon: Daemon, child: Child, seconds: float, every: float) -> list[Sample]:
    began, said = time.monotonic(), 0.0
    samples: list[Sample] = []
    while (now := time.monotonic() - began) < seconds:
        time.sleep(every)
        one = sample(daemon, child, began)
        samples.append(one)
        if now - said >= 30:
            said = now
            say(
                f"   {one.at:.0f} s: {one.rss_mb} MB, {one.descriptors} descriptors, {one.threads} threads,"
                f" journal {one.journal_mb} MB, delivered {one.delivered}"
            )
    return samples


def show(result: dict[str, Any]) -> None:
    print(
        f"{result['seconds']:g} s at {result['rate']:g} tickets/s, {result['delivered_per_second']} delivered"
        f" a second, peak {result['peak_mb']} MB, {result['cpu_share']} of a core;"
        f" the first {result['warm_up']:g} s are not counted"
    )
    rows = [[t["name"], f"{t['first']:g}", f"{t['last']:g}", t["verdict"]] for t in result["trends"]]
    print(table(["median of", "first third", "last third", ""], rows))
    print(f"asyncio tasks: {result['tasks']}")
    print(f"world: {result['world']}")
    if not result["kept_up"]:
        print(f"!! less than {KEPT_UP:.0%} of the rate was delivered: this machine was too busy")
    print("flat" if result["ok"] else "FAILED")


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rate", type=float, default=200, help="tickets a second (200)")
    parser.add_argument("--every", type=float, default=3, help="seconds between two samples (3)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    asked = arguments(argv)
    result = conducted("soak", lambda: run(asked.seconds, asked.rate, asked.every), show, asked.json)
    return 0 if result is not None and result["ok"] and result["kept_up"] else 1
