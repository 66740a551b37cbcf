"""The real daemon against the simulated world, both on real sockets of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from pipeline.app import Daemon, prepare
from pipeline.config import Settings
from pipeline.sim.behaviour import Behaviour, changed
from pipeline.sim.server import SimServer, serve

LANE = "shopee"
#: How long anything may take on a slow machine before it counts as not happening.
PATIENCE = 30.0

#: A world that is quick and without whims; tests say what they want otherwise.
CALM: Mapping[str, Any] = {
    "rate": 100,
    "duplicate_share": 0,
    "processing_share": 0,
    "processing_time": 0.3,
    "offline_share": 0,
    "page_min": 2000,
    "page_max": 4000,
    "timestamp": "epoch_ms",
    "pull": {"latency": 0.005},
    "query": {"latency": 0.01},
    "callback": {"latency": 0.01},
}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    tree = dict(base)
    for name, value in over.items():
        known = tree.get(name)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            tree[name] = merged(known, value)
        else:
            tree[name] = value
    return tree


def lane_tree(url: str, **changes: Any) -> dict[str, Any]:
    """One lane over HTTP with small pools: these tests are about order, not about speed."""
    base = {
        "pull": {"url": url, "phone": "13800001111", "workers": 4, "batch": 2, "interval": 0.1},
        "query": {"url": url, "token": "query-token", "workers": 10, "batch": 10, "probe_interval": 0.3},
        "callback": {"url": url, "workers": 10, "batch": 10, "degraded_batch": 5, "retry_interval": 0.2},
    }
    return merged(base, changes)


def settings_tree(lanes: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    base = {
        "daemon": {"lang": "en", "log_format": "json", "drain_timeout": PATIENCE},
        "web": {"port": 0},
        "lanes": lanes,
    }
    return merged(base, changes)


async def eventually(
    holds: Callable[[], object], within: float = PATIENCE, why: Callable[[], object] = lambda: ""
) -> None:
    """For what has no event to wait for."""
    try:
        async with asyncio.timeout(within):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"it did not happen: {why()}") from None


class Live:
    """A running daemon, as an operator sees it."""

    def __init__(self, daemon: Daemon, http: aiohttp.ClientSession, done: asyncio.Task[int]) -> None:
        self.daemon = daemon
        self.http = http
        self.done = done

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def text(self, path: str) -> str:
        async with self.http.get(path) as response:
            return await response.text()

    async def post(self, path: str, **body: Any) -> Any:
        async with self.http.post(path, json=body or None) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def lane(self, name: str = LANE) -> dict[str, Any]:
        found: dict[str, Any] = (await self.get("/api/status"))["lanes"][name]
        return found

    def status(self, name: str = LANE) -> dict[str, Any]:
        """The same, without a wire: for conditions that are asked very often."""
        return self.daemon.lanes[name].status()

    def counter(self, counter: str, name: str = LANE) -> int:
        return self.daemon.lanes[name].controller.ledger.counters[counter]

    def holds(self, stage: str = "pull", name: str = LANE) -> set[str]:
        return {str(reason) for reason in self.daemon.lanes[name].controller.stages[stage].gate.holds}

    async def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Oldest first."""
        found = (await self.get("/api/events?limit=1000"))["events"]
        return [event for event in reversed(found) if kind in (None, event["kind"])]

    async def all_ended(self, server: SimServer, name: str = LANE) -> None:
        """Until all that was handed out has ended; the books must balance whenever one looks."""
        lane, counts = self.daemon.lanes[name], server.world.ledger.counts

        def empty() -> bool:
            assert_balanced(lane.status())
            arrived = self.counter("pulled", name) == counts["handed_out"] + counts["repeats"]
            return arrived and not lane.in_flight()

        await eventually(empty, why=lambda: (self.status(name), server.world.truth()))


def assert_balanced(lane: Mapping[str, Any]) -> None:
    assert lane["conservation"]["balanced"], (lane["conservation"], lane["counters"])


def assert_all_delivered_once(truth: Mapping[str, Any]) -> None:
    """What the world saw: every ticket on time, none twice, nothing wrong on the wire."""
    assert truth["delivered"] == truth["on_time"] == truth["handed_out"] > 0, truth
    wrong = ("late", "twice", "again_after_cut", "unknown", "wrong_token", "bad_results", "protocol_errors")
    assert {name: truth[name] for name in wrong} == dict.fromkeys(wrong, 0), truth
    assert truth["paid_again"] == 0, truth
    assert truth["concurrent_same_key_max"] <= 1, truth


@asynccontextmanager
async def world(**behaviour: Any) -> AsyncIterator[SimServer]:
    """Its seed is fixed: what happens is the same in every run but for the clock."""
    server = await serve(behaviour=changed(Behaviour(), merged(CALM, behaviour)))
    try:
        yield server
    finally:
        await server.close()


@asynccontextmanager
async def running(
    tree: Mapping[str, Any], path: Path | None = None, headers: Mapping[str, str] | None = None
) -> AsyncIterator[Live]:
    """The daemon from ready to closed. It must end by itself with 0 when it is told to."""
    with TemporaryDirectory(prefix="tidegate-test-") as folder:
        settings = Settings(**merged({"daemon": {"data_dir": folder}}, tree))
        prepare(settings)
        async with _running(Daemon(settings, path), headers) as live:
            yield live


@asynccontextmanager
async def _running(daemon: Daemon, headers: Mapping[str, str] | None) -> AsyncIterator[Live]:
    done = asyncio.create_task(daemon.run())
    await eventually(lambda: daemon.ready or done.done())
    try:
        url = f"http://127.0.0.1:{daemon.web.port}"
        timeout = aiohttp.ClientTimeout(PATIENCE)
        async with aiohttp.ClientSession(url, timeout=timeout, headers=headers) as http:
            yield Live(daemon, http, done)
    finally:
        daemon.shutdown("test")
        async with asyncio.timeout(2 * PATIENCE):
            assert await done == 0


async def upstream_runs_dry(server: SimServer) -> None:
    """No new tickets from now on, and the last one is handed out."""
    server.world.change({"rate": 0})
    await eventually(lambda: not server.world.truth()["backlog"], why=server.world.truth)


def rss_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
