"""Faults 14 and 15: the wall clock is set, and the money runs out."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

import pipeline.clock
from pipeline.events import Kind
from tests.e2e.harness import LANE, assert_all_delivered_once, eventually
from tests.faults.faulty_world import stage

HOUR = 3600.0


class WallClock:
    """The system's, as far as `pipeline.clock` can see; everything but the wall time is real."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step = 0.0
        names = {name: getattr(time, name) for name in dir(time) if not name.startswith("__")}
        names["time"] = lambda: time.time() + self.step
        monkeypatch.setattr(pipeline.clock, "time", SimpleNamespace(**names))


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_14_a_wall_clock_that_steps_by_an_hour_drops_nothing_and_is_told(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    wall = WallClock(monkeypatch)
    async with stage() as play:
        await play.delivers(50)
        uptime = (await play.live.get("/api/status"))["uptime"]
        began = time.monotonic()
        wall.step = step
        await eventually(lambda: play.told("clock_skew"))
        await play.delivers(100)
        # Nobody became an hour older, and no call took an hour.
        status = await play.live.get("/api/status")
        assert status["uptime"] - uptime < time.monotonic() - began + 1
        lane = status["lanes"][LANE]
        assert lane["counters"]["pull_expired"] == lane["counters"]["future_dated"] == 0
        assert sum(lane["dropped"].values()) == 0
        assert lane["queue"]["oldest_age"] < 60
        for name in ("pull", "query", "callback"):
            assert 0 <= lane["stages"][name]["latency"]["p99"] < 30
        wall.step = 0.0
        await eventually(lambda: play.told("clock_skew", "recover"))
        offsets = [event.detail["offset"] for event in play.watch.of_kind(Kind.CLOCK_SKEW)]
        assert [round(offset) for offset in offsets] == [step, 0]
        await play.all_ended()
        assert_all_delivered_once(play.server.world.truth())


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_14_a_clock_that_is_set_right_by_an_hour_is_followed_and_nobody_in_flight_dies_of_it(
    monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """Ours was wrong, upstream's was not: the tickets looked unborn or too old until the clock was set."""
    wall = WallClock(monkeypatch)
    async with stage(query={"latency": 0.5 if step > 0 else 0.01}) as play:
        play.live.daemon.clock._anchor -= step  # type: ignore[attr-defined]  # as if started an hour off
        wall.step = -step
        await eventually(lambda: play.told("clock_skew"))
        if step > 0:
            await eventually(lambda: play.live.status()["stages"]["query"]["busy"] > 20)
        wall.step = 0.0
        await eventually(lambda: play.told("clock_skew", "recover"), why=play.live.status)
        assert abs(play.live.daemon.clock.step()) < 1
        expired, goal = play.counter("pull_expired"), play.counter("delivered") + 100

        def dropped() -> int:
            return sum(play.live.status()["dropped"].values())

        await eventually(lambda: play.counter("delivered") >= goal or dropped())
        assert dropped() == 0, play.live.status()["dropped"]
        assert play.counter("pull_expired") == expired
        await play.all_ended()


async def test_15_credit_that_runs_out_holds_is_probed_and_loses_nothing() -> None:
    async with stage(credits=60) as play:
        await eventually(lambda: {"credit"} <= play.live.holds("pull") & play.live.holds("query"))
        await eventually(lambda: play.told("credit"))
        await eventually(lambda: play.live.status()["stages"]["query"]["busy"] == 0)
        asked = play.counter("queried")
        await eventually(lambda: play.counter("queried") > asked + 2)  # probes, one ticket each
        assert play.live.status()["state"] == "paused"
        play.server.world.change({"credits": 1_000_000})
        await play.delivers(100)
        await play.all_ended()
        assert_all_delivered_once(play.server.world.truth())
        assert play.live.status()["drop_rate"]["dropped"] == 0
        reasons = {(e.kind, e.detail["reason"]) for e in play.watch.events if "reason" in e.detail}
        assert reasons == {(Kind.HOLD, "credit"), (Kind.RELEASE, "credit")}
