"""What 400,000 processed keys cost: our structure against a set of strings and a set of integers.

Each is measured in a process of its own, so that one's freed memory does not hide another's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.measure import clean_environment, machine, memory_kb, table, write_json
from pipeline.queue.dedupe import ProcessedKeys

KEYS = 400_000
#: The daemon's default: two rolling buckets hold all keys of this bench.
BUCKET_KEYS = 200_000
REPEATS = 3


def keys(start: int, number: int) -> Iterator[str]:
    """Fresh strings, as they come from a pull: only the structure keeps anything of them."""
    return (f"{n % 99_991}:{10_000_000_000 + n}:tw" for n in range(start, start + number))


def processed_keys() -> tuple[Callable[[str], Any], Callable[[str], bool]]:
    found = ProcessedKeys(BUCKET_KEYS)
    return found.add, found.__contains__


def strings() -> tuple[Callable[[str], Any], Callable[[str], bool]]:
    found: set[str] = set()
    return found.add, found.__contains__


def integers() -> tuple[Callable[[str], Any], Callable[[str], bool]]:
    """64 bits of each key: two different keys share them once in tens of millions of fillings."""
    found: set[int] = set()
    return lambda key: found.add(hash(key)), lambda key: hash(key) in found


STRUCTURES = {"ProcessedKeys": processed_keys, "set of str": strings, "set of 64-bit int": integers}


def seconds_for(action: Callable[[str], Any], start: int, number: int) -> float:
    """CPU time: on a busy machine the clock on the wall would count the neighbours too."""
    began = time.process_time()
    for key in keys(start, number):
        action(key)
    return time.process_time() - began


def best_of(action: Callable[[str], Any], start: int, number: int) -> float:
    return min(seconds_for(action, start, number) for _ in range(REPEATS))


def measure_one(name: str, number: int) -> dict[str, float]:
    """In this process, which must be fresh. The cost of making the keys is taken off."""
    making = best_of(lambda key: None, 0, number)
    before = memory_kb("self", "VmRSS")
    # After the first reading: a structure that takes its memory when it is made must not get it for free.
    add, contains = STRUCTURES[name]()
    adding = seconds_for(add, 0, number)
    after = memory_kb("self", "VmRSS")
    finding = best_of(contains, 0, number)
    missing = best_of(contains, number, number)
    found = sum(map(contains, keys(0, number)))
    return {
        "mb": (after - before) / 1024,
        "bytes_per_key": (after - before) * 1024 / number,
        "peak_mb": (memory_kb("self", "VmHWM") - before) / 1024,
        "add_ns": (adding - making) / number * 1e9,
        "hit_ns": (finding - making) / number * 1e9,
        "miss_ns": (missing - making) / number * 1e9,
        "found": found,
    }


def in_fresh_process(name: str, number: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks", "dedupe", "--one", name, "--keys", str(number)]
    done = subprocess.run(command, env=clean_environment(), stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


COLUMNS = {
    "mb": "MB",
    "bytes_per_key": "bytes/key",
    "peak_mb": "peak MB",
    "add_ns": "add ns",
    "hit_ns": "hit ns",
    "miss_ns": "miss ns",
}


def report(results: dict[str, dict[str, float]]) -> str:
    rows = [[name, *(f"{result[column]:.1f}" for column in COLUMNS)] for name, result in results.items()]
    return table(("structure", *COLUMNS.values()), rows)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench dedupe", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--json", metavar="FILE", help="write the result here instead of to standard output")
    parser.add_argument("--one", choices=sorted(STRUCTURES), help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.one:
        print(json.dumps(measure_one(asked.one, asked.keys)))
        return 0
    results = {name: in_fresh_process(name, asked.keys) for name in STRUCTURES}
    print(report(results))
    write_json(asked.json, {"machine": machine(), "keys": asked.keys, "structures": results})
    return 0
