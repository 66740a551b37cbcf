"""How soon `curl -X POST …/api/pause` takes effect while the daemon is at its full speed.

The world notes when the last pull reached it. Both processes read the same clock, so the time from the order
until no pull comes any more is what an operator waits, the connection of the order included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import say, table
from benchmarks.pipeline import Server, parse_size, world
from benchmarks.players import Broken, Daemon, ask, conducted

ALLOWED_MS = 100.0
WARM_UP = 5.0
#: A pull that comes within this time after the order is seen, however late it is.
WATCHED = 0.5
BETWEEN = 1.0


@dataclass(frozen=True, slots=True)
class Pause:
    answered_ms: float
    last_pull_ms: float  # after the order was given; below 0 = none came after it
    pulls_per_second: float  # just before

    @property
    def effect_ms(self) -> float:
        return max(self.answered_ms, self.last_pull_ms)


def paused_once(daemon: Daemon, outside: Server) -> Pause:
    before = outside.counts()
    time.sleep(BETWEEN)
    ordered = time.monotonic()
    ask(daemon.port, "/api/pause", {})
    answered = time.monotonic()
    time.sleep(WATCHED)
    after = outside.counts()
    if daemon.status()["state"] != "paused":
        raise Broken("it was told to pause and did not")
    ask(daemon.port, "/api/resume", {})
    return Pause(
        round((answered - ordered) * 1000, 1),
        round((after["last_pull"] - ordered) * 1000, 1),
        round((after["pulls"] - before["pulls"]) / (ordered - before["at"]), 1),
    )


def run(times: int, size: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-pause-") as name, world(parse_size(size), None) as outside:
        daemon = Daemon(Path(name), outside.base("plain"), {})
        with daemon.running() as child:
            time.sleep(WARM_UP)
            began, cpu = outside.counts(), child.cpu_seconds()
            time.sleep(BETWEEN)
            ended = outside.counts()
            share = (child.cpu_seconds() - cpu) / (ended["at"] - began["at"])
            rate = (ended["callbacks"] - began["callbacks"]) / (ended["at"] - began["at"])
            say(f"  {rate:,.0f} tickets/s of {size}, {share:.0%} of a core")
            pauses = [paused_once(daemon, outside) for _ in range(times)]
    idle = sum(pause.pulls_per_second == 0 for pause in pauses)
    return {
        "size": size,
        "tickets_per_second": round(rate, 1),
        "cpu_share": round(share, 2),
        "pauses": [asdict(pause) for pause in pauses],
        "worst_ms": max(pause.effect_ms for pause in pauses),
        "idle": idle,
        "ok": not idle and all(pause.effect_ms <= ALLOWED_MS for pause in pauses),
    }


def show(result: dict[str, Any]) -> None:
    print(
        f"{len(result['pauses'])} pauses at {result['tickets_per_second']:,.0f} tickets/s"
        f" of {result['size']}, {result['cpu_share']:.0%} of a core"
    )
    rows = [
        [what, f"{median(values):.1f}", f"{max(values):.1f}"]
        for what, values in (
            ("the order is answered", [pause["answered_ms"] for pause in result["pauses"]]),
            ("the last pull arrives", [pause["last_pull_ms"] for pause in result["pauses"]]),
        )
    ]
    print(table(["ms after the order", "median", "worst"], rows))
    if result["idle"]:
        print(f"!! {result['idle']} times nothing was pulled before the order: it shows nothing")
    print(f"within {ALLOWED_MS:g} ms" if result["ok"] else "FAILED")


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench pause", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=20, help="how many pauses (20)")
    parser.add_argument("--size", default="100k", help="page size (100k)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    asked = arguments(argv)
    result = conducted("pause", lambda: run(max(1, asked.times), asked.size), show, asked.json)
    return 0 if result is not None and result["ok"] else 1
