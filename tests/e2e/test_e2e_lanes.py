"""One lane's bugs are its own."""

from __future__ import annotations

import pytest

from tests.e2e.harness import (
    assert_all_delivered_once,
    assert_balanced,
    eventually,
    lane_tree,
    running,
    settings_tree,
    upstream_runs_dry,
    world,
)

ENDS = "tests.e2e.broken_ends"


async def test_a_source_that_always_raises_is_counted_and_said_and_the_other_lane_delivers(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with world() as server:
        lanes = {"good": lane_tree(server.url), "bad": lane_tree(server.url, source=f"{ENDS}:BrokenSource")}
        async with running(settings_tree(lanes)) as live:
            await eventually(lambda: live.counter("delivered", "good") > 100)
            await eventually(lambda: live.counter("worker_crashes", "bad") > 3)
            crashes = [event for event in await live.events("worker_crashed") if event["stage"] == "pull"]
            assert {event["lane"] for event in crashes} == {"bad"}
            assert crashes[0]["level"] == "error"
            assert crashes[0]["detail"]["error"] == "ZeroDivisionError"
            assert "broken_ends.py" in crashes[0]["detail"]["where"]
            assert live.counter("worker_crashes", "good") == 0
            metrics = await live.text("/metrics")
            assert "worker_crashes" in metrics
            await upstream_runs_dry(server)
            await live.all_ended(server, "good")
            assert_balanced(await live.lane("bad"))
            assert live.status("bad")["counters"]["pulled"] == 0
        assert_all_delivered_once(server.world.truth())
    logged = capfd.readouterr().err
    assert "Traceback" in logged
    assert "the user's bug" in logged


async def test_a_lane_that_cannot_be_opened_is_said_and_the_other_delivers() -> None:
    async with world() as server:
        broken = lane_tree(server.url, source=f"{ENDS}:UnopenableSource")
        async with running(settings_tree({"bad": broken, "good": lane_tree(server.url)})) as live:
            await eventually(lambda: live.counter("delivered", "good") > 50)
            assert live.status("bad")["state"] == "stopped"
            async with live.http.get("/readyz") as response:
                assert response.status == 503
                assert (await response.json())["reasons"] == ["lane bad has failed"]
            await upstream_runs_dry(server)
            await live.all_ended(server, "good")
        assert_all_delivered_once(server.world.truth())


@pytest.mark.parametrize(("end", "name"), [("provider", "BrokenProvider"), ("sink", "BrokenSink")])
async def test_a_ticket_that_meets_a_bug_again_and_again_ends_as_crashed(end: str, name: str) -> None:
    async with world(rate=20) as server:
        tree = lane_tree(server.url, callback={"retries": 1}, **{end: f"{ENDS}:{name}"})
        async with running(settings_tree({"bad": tree})) as live:
            await eventually(lambda: live.counter("pulled", "bad") > 3)
            await upstream_runs_dry(server)
            await live.all_ended(server, "bad")
            counters = (await live.lane("bad"))["counters"]
            assert counters["crashed"] == counters["pulled"]
            assert counters["worker_crashes"] >= 2 * counters["crashed"]
            assert live.status("bad")["drop_rate"]["dropped"] == 0
        assert server.world.truth()["delivered"] == 0
