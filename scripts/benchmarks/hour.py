"""An hour of one lane at full rate in virtual time: what it keeps, its tasks and timers, first half and last.

Virtual time has no disk and no sockets, so this is the engine alone, without journal and HTTP ends: `soak`
has them, for minutes. Everything that can be reached from the lane is weighed, except the simulated world,
which remembers each ticket on purpose.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import sys
import time
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import structlog

from benchmarks.measure import machine, say, table, write_json
from pipeline.config import LaneConfig
from pipeline.events import Bus
from pipeline.lane import Lane
from pipeline.sim.behaviour import Behaviour
from pipeline.sim.ports import SimProvider, SimSink, SimSource
from pipeline.sim.scenarios import find_script
from pipeline.sim.virtual import VirtualClock, run_virtual
from pipeline.sim.world import World

#: Two weighings are never of the same moment's queue.
GROWTH_SHARE = 0.10
NOT_KEPT = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    asyncio.AbstractEventLoop,
)
THE_WORLD = "pipeline.sim."


@dataclass(frozen=True, slots=True)
class Weight:
    at: float
    kept_mb: float
    objects: int
    tasks: int
    timers: int
    delivered: int


def weighed(lane: Lane, at: float) -> Weight:
    gc.collect()
    seen: set[int] = set()
    left: list[Any] = [lane]
    size = 0
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, NOT_KEPT) or type(one).__module__.startswith(THE_WORLD):
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        left.extend(gc.get_referents(one))
    loop = asyncio.get_running_loop()
    return Weight(
        round(at),
        round(size / 1e6, 2),
        len(seen),
        len(asyncio.all_tasks()),
        len(loop._scheduled),  # type: ignore[attr-defined]
        lane.controller.ledger.counters["delivered"],
    )


async def hour(clock: VirtualClock, rate: float, seconds: float, parts: int) -> list[Weight]:
    world = World(clock, Behaviour(rate=rate, page_min=1000, page_max=1200), seed=1)
    config = LaneConfig(source="sim", provider="sim", sink="sim")
    lane = Lane(
        "hour",
        config,
        SimSource(world, find_script("calm")),
        SimProvider(world),
        SimSink(world),
        clock,
        Bus(),
    )
    await lane.open()
    found: list[Weight] = []
    try:
        for _ in range(parts):
            await clock.sleep(seconds / parts)
            found.append(weighed(lane, clock.monotonic()))
            last = found[-1]
            say(f"   {last.at:.0f} s: {last.kept_mb} MB kept, {last.tasks} tasks, delivered {last.delivered}")
            if not lane.controller.ledger.conservation(lane.in_flight())["balanced"]:
                raise SystemExit("hour: the books do not balance")
    finally:
        await lane.close()
    return found


def growing(found: Sequence[Weight]) -> list[str]:
    """The heaviest of the last half against the heaviest of the half before, once the keys are all there."""
    half = len(found) // 2
    return [
        name
        for name in ("kept_mb", "objects", "tasks", "timers")
        if max(getattr(one, name) for one in found[half:])
        > (1 + GROWTH_SHARE) * max(getattr(one, name) for one in found[:half])
    ]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench hour", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rate", type=float, default=300, help="tickets a second (300)")
    parser.add_argument("--seconds", type=float, default=3600, help="of virtual time (3600)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    asked = parser.parse_args(argv)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began = time.monotonic()
    found = run_virtual(lambda clock: hour(clock, asked.rate, asked.seconds, parts=12))
    took = time.monotonic() - began
    more = growing(found)
    names = ("at", "kept_mb", "objects", "tasks", "timers", "delivered")
    print(table(list(names), [[f"{getattr(one, name):,}" for name in names] for one in found]))
    delivered = found[-1].delivered
    print(f"{asked.seconds:g} s at {asked.rate:g} tickets/s in {took:.0f} s; delivered {delivered:,}")
    kept_up = delivered >= 0.98 * asked.rate * asked.seconds
    print("flat" if not more else f"GROWING: {', '.join(more)}")
    if asked.json:
        weights = [asdict(one) for one in found]
        write_json(
            asked.json, {"machine": machine(), "weights": weights, "growing": more, "kept_up": kept_up}
        )
    return 0 if not more and kept_up else 1
