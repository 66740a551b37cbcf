"""The real daemon and the simulated world with a proxy before each end, watched from beginning to end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.sim.reply import Reply
from pipeline.sim.server import SimServer
from tests.e2e.harness import (
    LANE,
    Live,
    eventually,
    lane_tree,
    merged,
    running,
    settings_tree,
    upstream_runs_dry,
    world,
)
from tests.faults.fault_proxy import FaultProxy, fault_proxy
from tests.faults.invariants import (
    ONCE,
    PHONE,
    QUERY,
    WEB,
    WECOM,
    Record,
    Watch,
    check_invariants,
    edges_told,
    secrets_in,
)

PLACES = ("/api/status", "/api/events?limit=1000", "/metrics")
#: Minutes as seconds, so that what ends by its age ends within a test.
SHORT_LIVES: dict[str, Any] = {
    "pull": {"max_age": 1.8},
    "queue": {"max_age": 2.8, "clean_every": 0.3},
    "query": {"stale_age": 2.4, "max_age": 2.9},
    "callback": {"max_age": 2.9},
}
#: A breaker whose ladder is climbed in a second or two.
QUICK_BREAKER: dict[str, Any] = {"trip_after": 20, "pause": 0.2, "pause_max": 0.8, "trials": 4}


@dataclass
class Stage:
    live: Live
    server: SimServer
    watch: Watch
    pull: FaultProxy
    query: FaultProxy
    callback: FaultProxy
    wecom: FaultProxy

    @property
    def record(self) -> Record:
        return self.watch.records[LANE]

    def counter(self, name: str) -> int:
        return self.live.counter(name)

    def all_told(self) -> list[tuple[str, str]]:
        return edges_told(self.server.alerts)

    def told(self, cause: str, edge: str = "fire") -> bool:
        """Whether such an alert has arrived."""
        return (cause, edge) in self.all_told()

    async def delivers(self, more: int = 50) -> None:
        goal = self.counter("delivered") + more
        await eventually(lambda: self.counter("delivered") >= goal, why=self.live.status)

    async def all_ended(self) -> Mapping[str, Any]:
        """Upstream has no more, everything has ended, and every hold by itself."""
        await upstream_runs_dry(self.server)
        await self.live.all_ended(self.server)
        return self.server.world.truth()

    async def alerts_recovered(self) -> None:
        """What fired has been told to be over; a window that must run empty first takes its time."""

        def recovered() -> bool:
            firing: set[str] = set()
            for cause, edge in edges_told(self.server.alerts):
                if not cause.startswith(ONCE):
                    firing = firing - {cause} if edge == "recover" else firing | {cause}
            return not firing

        await eventually(recovered, why=lambda: list(self.server.alerts))


@asynccontextmanager
async def stage(
    lane: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    query_tls: Any = None,
    urls: Mapping[str, Any] | None = None,
    over: bool = True,
    **behaviour: Any,
) -> AsyncIterator[Stage]:
    """`over`: at the end the fault has passed, so nothing may be in flight and no alert left open."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(world(**behaviour))
        pull, callback, wecom = [await stack.enter_async_context(fault_proxy(server.port)) for _ in range(3)]
        query = await stack.enter_async_context(fault_proxy(server.port, tls=query_tls))
        ends = {
            "pull": {"url": pull.url, "phone": PHONE},
            "query": {"url": query.url, "token": QUERY},
            "callback": {"url": callback.url},
        }
        tree = lane_tree("", **merged(merged(ends, urls or {}), lane or {}))
        robot = {"wecom": {"key": WECOM, "url": f"{wecom.url}/cgi-bin/webhook/send"}}
        whole = settings_tree(
            {LANE: tree}, **merged({"alerts": robot, "web": {"token": WEB}}, settings or {})
        )
        async with running(whole, None, {"Authorization": f"Bearer {WEB}"}) as live:
            shown = Stage(live, server, Watch(live.daemon), pull, query, callback, wecom)
            yield shown
            if over:
                await shown.alerts_recovered()
                assert not live.daemon.lanes[LANE].in_flight()
            texts = {place: await live.text(place) for place in PLACES}
            texts |= journal_files(live.daemon.settings.daemon.data_dir)
            texts["alerts"] = "\n".join(str(alert) for alert in server.alerts)
            assert secrets_in(texts) == []
            check_invariants(shown.watch, server.world, server.alerts, over)


def journal_files(folder: str) -> dict[str, str]:
    """The journal as it lies on the disk, as text that can be searched."""
    return {path.name: path.read_bytes().decode("latin-1") for path in Path(folder).glob("journal.db*")}


Judge = Callable[[str, int], Reply | None]


def scripted(server: SimServer, judge: Judge) -> list[tuple[str, float]]:
    """The provider answers what `judge(key, how often it was asked)` says; None is its usual answer.

    Gives back a list that grows by (key, moment) with every query."""
    asked: list[tuple[str, float]] = []
    seen: dict[str, int] = {}
    usual = server.world._whole_reply

    def reply(delay: float, key: str, shop_id: object, item_id: object, country: str) -> Reply:
        seen[key] = seen.get(key, 0) + 1
        asked.append((key, server.world.clock.monotonic()))
        return judge(key, seen[key]) or usual(delay, key, shop_id, item_id, country)

    server.world._whole_reply = reply  # type: ignore[method-assign]
    return asked
