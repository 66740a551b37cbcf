"""From upstream to callback over real sockets, while nothing is wrong."""

from __future__ import annotations

import asyncio
from typing import Any

from pipeline.clock import Clock
from pipeline.config import PullConfig
from pipeline.ports import Pulled
from pipeline.pull.http import HttpSource
from tests.e2e.harness import (
    LANE,
    assert_all_delivered_once,
    assert_balanced,
    eventually,
    lane_tree,
    running,
    settings_tree,
    upstream_runs_dry,
    world,
)

SECONDS = 6
RATE = 100


async def test_every_ticket_of_six_seconds_is_delivered_once_and_the_queue_keeps_its_mark() -> None:
    async with world(rate=RATE, processing_share=0.4, duplicate_share=0.02, offline_share=0.03) as server:
        tree = lane_tree(server.url, queue={"high_water": 100, "low_water": 20})
        async with running(settings_tree({LANE: tree})) as live:
            began = live.daemon.clock.monotonic()
            await eventually(lambda: live.daemon.clock.monotonic() - began > SECONDS)
            assert_balanced(await live.lane())
            await upstream_runs_dry(server)
            await live.all_ended(server)
            status, truth = await live.lane(), server.world.truth()
    # A duplicate that comes after its key was done is dropped and counted, the others are joined.
    duplicates = status["counters"]["duplicates"]
    assert truth["handed_out"] > RATE * SECONDS / 2
    assert truth["delivered"] == truth["on_time"] == truth["handed_out"] - duplicates
    assert truth["twice"] == truth["wrong_token"] == truth["bad_results"] == truth["protocol_errors"] == 0
    assert truth["paid"] == truth["unique_keys"]
    assert status["counters"]["pulled"] == truth["handed_out"]
    assert status["counters"]["delivered"] == truth["delivered"]
    assert status["counters"]["processing"] == truth["processing"] > 0
    assert status["queue"]["peak"] <= 1.05 * status["queue"]["high_water"]
    assert_balanced(status)


async def test_a_pause_stops_every_pull_that_had_not_begun_and_resume_brings_them_back() -> None:
    """The world counts: what reaches it after the answer was on its way before the answer."""
    async with world(rate=5000, pull={"latency": 0.02}) as server:
        pools = {"pull": {"workers": 30}, "queue": {"high_water": 5000, "low_water": 100}}
        async with running(settings_tree({LANE: lane_tree(server.url, **pools)})) as live:
            pulls = server.world.ledger.counts
            busy = live.daemon.lanes[LANE].controller.stages["pull"]
            await eventually(lambda: live.counter("delivered") > 300)
            answer = await live.post("/api/pause", reason="lunch")
            # Nothing is awaited between the answer and these two lines.
            reached, under_way = pulls["pulls"], busy.busy
            assert answer["lanes"][LANE]["state"] == "paused"
            assert busy.gate.holds
            await eventually(lambda: busy.busy == 0)
            assert pulls["pulls"] <= reached + under_way
            last = pulls["pulls"]
            server.world.change({"rate": 0})
            await live.all_ended(server)
            assert pulls["pulls"] == last
            hold = (await live.lane())["holds"]["pull"][0]
            assert (hold["reason"], hold["detail"]) == ("manual", "lunch")
            assert (await live.get("/readyz"))["ready"] is True

            resumed = await live.post("/api/resume")
            assert resumed["lanes"][LANE]["released"] == ["manual"]
            await eventually(lambda: pulls["pulls"] > last)
            await upstream_runs_dry(server)
            await live.all_ended(server)
            assert_all_delivered_once(server.world.truth())


async def test_a_pause_for_a_time_ends_by_itself() -> None:
    async with world() as server, running(settings_tree({LANE: lane_tree(server.url)})) as live:
        await live.post("/api/pause", **{"for": 0.5})
        assert live.status()["state"] == "paused"
        await eventually(lambda: live.status()["state"] == "running")
        await eventually(lambda: live.counter("delivered") > 10)
        releases = [event["detail"] for event in await live.events("release")]
        assert [(detail["reason"], detail["by"]) for detail in releases] == [("manual", "its time")]


async def test_stop_holds_every_stage_and_start_loses_nothing() -> None:
    async with world(rate=300) as server, running(settings_tree({LANE: lane_tree(server.url)})) as live:
        await eventually(lambda: live.counter("delivered") > 100)
        assert (await live.post("/api/stop"))["lanes"][LANE]["state"] == "stopped"
        stages = live.daemon.lanes[LANE].controller.stages
        await eventually(lambda: not any(stage.busy for stage in stages.values()))
        before = dict(live.status()["counters"])
        counts = dict(server.world.ledger.counts)
        await asyncio.sleep(0.5)  # three ticks and several pull intervals in which nothing may begin
        assert live.status()["counters"] == before
        assert dict(server.world.ledger.counts) == counts
        assert_balanced(live.status())

        await live.post("/api/start")
        await eventually(lambda: live.counter("delivered") > before["delivered"] + 50)
        await upstream_runs_dry(server)
        await live.all_ended(server)
        assert_all_delivered_once(server.world.truth())


async def test_one_lane_can_be_paused_alone() -> None:
    async with world() as one, world() as two:
        lanes = {"one": lane_tree(one.url), "two": lane_tree(two.url)}
        async with running(settings_tree(lanes)) as live:
            await live.post("/api/pause?lane=one")
            await eventually(lambda: live.counter("delivered", "two") > 50)
            assert live.holds(name="one") == {"manual"}
            assert live.holds(name="two") == set()
            async with live.http.post("/api/pause?lane=three") as response:
                assert response.status == 404


async def test_shutdown_by_the_api_drains_and_exits_0_with_everything_delivered() -> None:
    slow = {"query": {"latency": 0.3}, "callback": {"latency": 0.2}}
    async with world(rate=300, **slow) as server:
        async with running(settings_tree({LANE: lane_tree(server.url)})) as live:
            await eventually(lambda: live.counter("delivered") > 50)
            await live.post("/api/shutdown")
            async with live.http.get("/readyz") as response:
                assert response.status == 503
            assert await live.done == 0
            assert live.daemon.lanes[LANE].in_flight() == 0
            assert_balanced(live.status())
        assert_all_delivered_once(server.world.truth())


async def test_shutdown_also_drains_what_waits_to_be_asked_again() -> None:
    async with world(rate=300, processing_share=1, processing_time=0.3) as server:
        async with running(settings_tree({LANE: lane_tree(server.url)})) as live:
            await eventually(lambda: live.status()["queue"]["delayed"] > 20)
            await live.post("/api/shutdown")
            assert await live.done == 0
            assert live.daemon.lanes[LANE].in_flight() == 0
        assert_all_delivered_once(server.world.truth())


async def test_shutdown_also_drains_answers_that_wait_for_their_retry() -> None:
    async with world(rate=100, callback={"latency": 0.01, "error": 1.0}) as server:
        tree = lane_tree(server.url, callback={"retry_interval": 1})
        async with running(settings_tree({LANE: tree})) as live:
            await eventually(lambda: live.status()["callbacks"]["retrying"] > 10)
            server.world.change({"callback": {"error": 0.0}})
            await live.post("/api/shutdown")
            assert await live.done == 0
            assert live.daemon.lanes[LANE].in_flight() == 0
        assert_all_delivered_once(server.world.truth())


class CountingSource(HttpSource):
    """An end that a user wrote."""

    made = 0

    def __init__(self, config: PullConfig, clock: Clock) -> None:
        super().__init__(config, clock, 8)
        CountingSource.made += 1
        self.pulls = 0

    async def pull(self, limit: int, timeout: float) -> Pulled:
        self.pulls += 1
        return await super().pull(limit, timeout)


async def test_an_end_of_the_users_own_is_named_in_the_configuration() -> None:
    before = CountingSource.made
    async with world() as server:
        tree: dict[str, Any] = lane_tree(server.url, source="tests.e2e.test_e2e_flow:CountingSource")
        async with running(settings_tree({LANE: tree})) as live:
            await eventually(lambda: live.counter("delivered") > 50)
            await upstream_runs_dry(server)
            await live.all_ended(server)
        assert_all_delivered_once(server.world.truth())
    # Under pytest this module may be imported by two names; the daemon's is the one that counts.
    import tests.e2e.test_e2e_flow as named

    assert max(named.CountingSource.made, CountingSource.made) > before
