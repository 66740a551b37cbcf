"""Faults 24, 26 and 27: the loop stands still, the descriptors are used up, a worker dies of a bug."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from pipeline.events import Kind
from pipeline.sim.server import SimServer
from tests.e2e.harness import (
    LANE,
    PATIENCE,
    assert_all_delivered_once,
    eventually,
    lane_tree,
    merged,
    settings_tree,
    upstream_runs_dry,
    world,
)
from tests.e2e.processes import Tidegate, tidegate
from tests.e2e.test_e2e_process import written
from tests.faults.bad_ends import BLOCK_SECONDS, Fragile
from tests.faults.fault_proxy import FaultProxy, Faults, fault_proxy
from tests.faults.faulty_world import QUICK_BREAKER, stage
from tests.faults.invariants import PHONE, QUERY, secrets_in

ENDS = "tests.faults.bad_ends"
SECRETS = {"pull": {"phone": PHONE}, "query": {"token": QUERY}}


async def test_24_a_loop_that_is_blocked_sends_no_ping_and_systemd_would_fire(tmp_path: Path) -> None:
    """35 s against systemd's 30, here three seconds against one."""
    watchdog = 1.0
    loop = asyncio.get_running_loop()
    heard: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)

        async def until(message: str, after: int = 0) -> int:
            """The place of the first such message from there on."""
            async with asyncio.timeout(PATIENCE):
                while True:
                    for place in range(after, len(heard)):
                        if heard[place] == message:
                            return place
                    heard.extend((await loop.sock_recv(systemd, 4096)).decode().splitlines())

        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(int(watchdog * 1e6))}
        async with world() as server:
            tree = lane_tree(server.url, **SECRETS, provider=f"{ENDS}:BlockingProvider")
            path = written(tmp_path, settings_tree({LANE: tree}))
            async with tidegate("run", "--config", path, env=env) as daemon:
                await until("READY=1")
                await until("WATCHDOG=1")
                blocked = await until("STATUS=blocked")
                free = await until("STATUS=free", blocked)
                assert heard[blocked + 1 : free] == []
                assert watchdog < BLOCK_SECONDS
                await until("WATCHDOG=1", free)
                # And where nobody ended it, it goes on and says what happened.
                await daemon.says(b'"loop_lag"')
                delivered = server.world.ledger.counts["delivered"]
                await eventually(lambda: server.world.ledger.counts["delivered"] > delivered + 50)
                await upstream_runs_dry(server)
                daemon.send(signal.SIGTERM)
                assert await daemon.ended() == 0
            assert_all_delivered_once(server.world.truth())
            assert secrets_in({"logs": daemon.everything()}) == []


# -- descriptors ---------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Starved:
    """A daemon without a free descriptor, asked over a connection that it has had all along."""

    def __init__(
        self, daemon: Tidegate, http: aiohttp.ClientSession, server: SimServer, proxy: FaultProxy
    ) -> None:
        self.daemon = daemon
        self.server = server
        self._proxy = proxy
        self._http = http

    async def until(self, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        status = await self._asked("/api/status", lambda status: holds(status["lanes"][LANE]))
        lane: dict[str, Any] = status["lanes"][LANE]
        return lane

    async def until_told(self, holds: Callable[[list[dict[str, Any]]], object]) -> list[dict[str, Any]]:
        told = await self._asked("/api/events?limit=1000", lambda told: holds(told["events"]))
        events: list[dict[str, Any]] = told["events"]
        return events

    async def _asked(self, path: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        async with asyncio.timeout(PATIENCE):
            while not holds(answer := await self._get(path)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return answer

    async def _get(self, path: str) -> dict[str, Any]:
        async with self._http.get(path) as response:
            found: dict[str, Any] = await response.json()
            return found

    def feed(self) -> None:
        self._proxy.heal()
        self.limit(1024)

    def limit(self, soft: int) -> None:
        hard = resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_NOFILE, (soft, hard))


@asynccontextmanager
async def starving(tmp_path: Path, **breaker: Any) -> AsyncIterator[Starved]:
    """All its connections are gone, and it cannot open another."""
    async with world() as server, fault_proxy(server.port) as proxy:
        tree = lane_tree(proxy.url, **merged(SECRETS, {"breaker": breaker, "retry": {"delay": 0.2}}))
        path = written(tmp_path, settings_tree({LANE: tree}))
        async with tidegate("run", "--config", path) as daemon:
            url = await daemon.url()
            async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=1)) as http:
                starved = Starved(daemon, http, server, proxy)
                await starved.until(lambda lane: lane["counters"]["delivered"] > 50)
                starved.limit(8)
                # Each connection ends with its next request, before that reaches the world.
                proxy.up = Faults(reset_after=0)
                yield starved
            daemon.send(signal.SIGTERM)
            assert await daemon.ended() == 0
        assert secrets_in({"logs": daemon.everything()}) == []
        assert "Traceback" not in daemon.everything()


async def test_26_without_descriptors_it_backs_off_and_recovers_when_there_are_some_again(
    tmp_path: Path,
) -> None:
    breaker = {**QUICK_BREAKER, "pause": 0.5, "pause_max": 1}
    async with starving(tmp_path, **breaker) as starved:
        first = await starved.until(lambda lane: lane["stages"]["pull"]["mode"] == "open")
        assert first["conservation"]["balanced"]
        loop, pid = asyncio.get_running_loop(), starved.daemon.process.pid
        began, cpu = loop.time(), cpu_seconds(pid)
        later = await starved.until(lambda _: loop.time() - began > 1.5)
        seconds = loop.time() - began
        assert cpu_seconds(pid) - cpu < 0.7 * seconds
        # A few trials after each pause, and none in between.
        faults = later["counters"]["pull_faults"] - first["counters"]["pull_faults"]
        assert faults <= 8 + breaker["trials"] * (1 + seconds / breaker["pause"]), faults
        assert later["counters"]["worker_crashes"] == 0
        starved.feed()
        goal = later["counters"]["delivered"] + 50
        await starved.until(lambda lane: lane["counters"]["delivered"] > goal)
        await upstream_runs_dry(starved.server)
        handed_out = starved.server.world.ledger.counts["handed_out"]
        ended = await starved.until(lambda lane: lane["counters"]["delivered"] == handed_out)
        assert ended["conservation"]["balanced"]
        truth = starved.server.world.truth()
        assert truth["delivered"] == truth["handed_out"]
        assert truth["twice"] == 0
        assert truth["concurrent_same_key_max"] <= 1


async def test_26_without_descriptors_it_says_so_once_and_wherever_an_operator_looks(tmp_path: Path) -> None:
    why = "no file descriptors left"
    async with starving(tmp_path, **QUICK_BREAKER) as starved:

        def opened_of_it(events: list[dict[str, Any]]) -> bool:
            return any(e["kind"] == "breaker" and e["detail"].get("fault") == why for e in events)

        await starved.until(lambda lane: (lane["stages"]["pull"]["last_fault"] or {}).get("why") == why)
        events = await starved.until_told(opened_of_it)
        told = [event["stage"] for event in events if event["kind"] == "descriptors"]
        assert "pull" in told
        assert len(told) == len(set(told))
        assert why in starved.daemon.everything()
        starved.server.world.change({"rate": 0})
        starved.feed()


# -- bugs ----------------------------------------------------------------------------------------------


async def test_27_a_worker_that_dies_of_a_bug_is_logged_counted_replaced_and_its_ticket_accounted_for(
    logged: Callable[[], str],
) -> None:
    Fragile.stumbles.clear()
    ends = {name: f"{ENDS}:Fragile{name.title()}" for name in ("source", "provider", "sink")}
    async with stage(ends, rate=150) as play:
        lane = play.live.daemon.lanes[LANE]
        sizes = [len(pool._tasks) for pool in lane._pools]
        await eventually(lambda: len(Fragile.stumbles) == 3 and min(Fragile.stumbles.values()) >= 6)
        await play.delivers(100)
        truth = await play.all_ended()
        assert play.counter("worker_crashes") == sum(Fragile.stumbles.values())
        crashed = {event.stage for event in play.watch.of_kind(Kind.WORKER_CRASHED)}
        assert crashed == {"pull", "query", "callback"}
        # As many workers as before, all of them alive.
        assert [sum(not task.done() for task in pool._tasks) for pool in lane._pools] == sizes
        assert play.counter("delivered") + play.counter("crashed") == play.counter("pulled")
        assert truth["delivered"] == play.counter("delivered") > 0.9 * truth["handed_out"]
        await eventually(lambda: lane.controller.room.reserved == 0)  # nothing kept for the dead
    assert logged().count("ZeroDivisionError: a bug") >= 3
    assert "Traceback" in logged()
