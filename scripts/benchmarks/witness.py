"""The simulated world as a process of its own, with a memory: who was handed out, paid, accepted when.

`/sim/*` is the simulator's own; `/witness/counts` and `/witness/facts` are what the memory adds.
The port is the first line on standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from typing import Any

import orjson
import uvloop
from aiohttp import web

from pipeline.clock import SystemClock
from pipeline.sim.behaviour import Behaviour, changed
from pipeline.sim.server import Service
from pipeline.sim.truth import TraceTruth, Truth
from pipeline.sim.world import World


class Memory(Truth):
    """The simulator's truth, plus every single moment of it."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.handed: dict[str, tuple[str, float, float]] = {}  # trace → key, created, handed out
        self.payments: list[tuple[str, float, bool]] = []  # key, when, answer cut off
        self.accepted: list[tuple[str, float, bool]] = []  # trace, when, answer cut off
        self._names: dict[int, str] = {}

    def handed_out(self, trace: str, key: str, page: tuple[str, str], created: float) -> None:
        super().handed_out(trace, key, page, created)
        if trace not in self.handed:
            self.handed[trace] = (key, created, self._clock.now())
            self._names[id(self._traces[trace])] = trace

    def paid(self, key: str, *, cut_off: bool) -> None:
        super().paid(key, cut_off=cut_off)
        self.payments.append((key, self._clock.now(), cut_off))

    def delivered(self, trace: TraceTruth, *, cut_off: bool) -> None:
        super().delivered(trace, cut_off=cut_off)
        self.accepted.append((self._names[id(trace)], self._clock.now(), cut_off))

    def sums(self) -> dict[str, int]:
        return {"handed": len(self.handed), "paid": len(self.payments), "accepted": len(self.accepted)}

    def facts(self) -> dict[str, Any]:
        return {"handed": self.handed, "payments": self.payments, "accepted": self.accepted}


async def serve(behaviour: Behaviour, seed: int) -> None:
    """Until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    clock = SystemClock()
    memory = Memory(clock)
    world = World(clock, behaviour, seed)
    world.ledger = memory
    app = Service(world, clock).app()

    async def counts(_: web.Request) -> web.StreamResponse:
        return _json(memory.sums())

    async def facts(_: web.Request) -> web.StreamResponse:
        return _json(memory.facts())

    app.router.add_get("/witness/counts", counts)
    app.router.add_get("/witness/facts", facts)
    # As the simulator does it: a client that was killed has ended its call here too.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    print(runner.addresses[0][1], flush=True)
    await ended.wait()
    await runner.cleanup()


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="witness", description="The simulated world, with a memory.")
    parser.add_argument("--behaviour", default="{}", help="changes to the calm world, as JSON")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(argv)
    uvloop.run(serve(changed(Behaviour(), json.loads(asked.behaviour)), asked.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
