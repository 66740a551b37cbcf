"""Canaries: no secret comes out of the daemon anywhere but where it belongs, whatever fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pipeline.sim.server import SimServer
from tests.e2e.fake_end import unused_url
from tests.e2e.harness import (
    Live,
    eventually,
    lane_tree,
    merged,
    running,
    settings_tree,
    world,
)
from tests.e2e.processes import toml

WEB, QUERY, PHONE, WECOM = "canary-web-1f", "canary-query-2e", "canary-phone-3d", "canary-wecom-4c"
TICKET = "tok-sim-"  # how the tokens of the world's tickets begin
CANARIES = (WEB, QUERY, PHONE, WECOM, TICKET)
BREAKER = {"trip_after": 15, "pause": 0.1, "pause_max": 0.2}
FAULTS = ("error", "reset", "garbage", "truncate")


def secret_lane(url: str, **changes: Any) -> dict[str, Any]:
    small = {
        "pull": {"phone": PHONE},
        "query": {"token": QUERY, "probe_interval": 0.2},
        "callback": {"retries": 1},
        "breaker": BREAKER,
        "retry": {"delay": 0.05, "per_second": 500},
    }
    return lane_tree(url, **merged(small, changes))


def secret_tree(server: SimServer, **changes: Any) -> dict[str, Any]:
    broken = "tests.e2e.broken_ends:BrokenSink"
    lanes = {
        "works": secret_lane(server.url),
        "crashes": secret_lane(server.url, sink=broken),
        "alone": secret_lane(unused_url()),
    }
    wecom = {"key": WECOM, "url": f"{server.url}/cgi-bin/webhook/send"}
    return settings_tree(lanes, **merged({"alerts": {"wecom": wecom}, "web": {"token": WEB}}, changes))


async def frames(live: Live, seen: list[str]) -> None:
    async with aiohttp.ClientSession(live.http._base_url) as http, http.ws_connect("/ws") as socket:
        await socket.send_json({"type": "auth", "token": WEB})
        async for message in socket:
            seen.append(str(message.data))  # noqa: PERF401 (others read the list meanwhile)


async def everything_fails(live: Live, server: SimServer) -> None:
    """Every end in every way it knows, until the daemon has met each."""
    for fault in FAULTS:
        # A receiver that answers 200 has taken the result, however odd its words.
        names = ("query_faults", "pull_faults", *(() if fault == "garbage" else ("callback_faults",)))
        before = {name: live.counter(name, "works") for name in names}
        half = {fault: 0.5}
        server.world.change({"pull": half, "query": half, "callback": half})
        await eventually(
            lambda before=before: all(live.counter(name, "works") > count for name, count in before.items()),  # type: ignore[misc]
            why=lambda: live.status("works"),
        )
        server.world.change({end: {fault: 0.0} for end in ("pull", "query", "callback")})
    for change, hold in (
        ({"auth_refused": True}, "auth"),
        ({"pull_refused": True}, "auth"),
        ({"credits": 0}, "credit"),
    ):
        server.world.change(change)
        await eventually(lambda hold=hold: hold in live.holds("pull", "works"))  # type: ignore[misc]
        server.world.change({"auth_refused": False, "pull_refused": False, "credits": None})
        await eventually(lambda hold=hold: hold not in live.holds("pull", "works"))  # type: ignore[misc]


async def strangers_knock(live: Live) -> None:
    async with aiohttp.ClientSession(live.http._base_url) as http:
        for path in (f"/api/status?token={WEB}", f"/api/{QUERY}", "/api/status"):
            for headers in ({}, {"Authorization": f"Bearer {WEB}x"}, {"Authorization": f"Basic {WEB}"}):
                async with http.get(path, headers=headers) as response:
                    assert response.status == 401
                    assert WEB not in await response.text()


BAD_FILES = (
    f'[web]\ntoken = "{WEB}" "{WEB}"\n',
    f'[web]\ntoken = ["{WEB}"]\n',
    f'[lanes.works.query]\ntokne = "{QUERY}"\n',
    f'[lanes.works]\npull = "{PHONE}"\n',
    f'[alerts.wecom]\nper_minute = "{WECOM}"\n',
)


def found_in(place: str, text: str) -> list[str]:
    return [f"{canary} in {place}: …{text[max(0, text.index(canary) - 200) :][:300]}" for canary in CANARIES
            if canary in text]  # fmt: skip


async def test_no_secret_leaves_the_daemon_when_every_end_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    quick = {"pull": {"latency": 0}, "query": {"latency": 0}, "callback": {"latency": 0}}
    async with world(rate=150, **quick) as server:
        tree = secret_tree(server, daemon={"log_level": "debug"})
        path = tmp_path / "config.toml"
        path.write_text(toml(tree), encoding="utf-8")
        seen: list[str] = []
        async with running(tree, path, {"Authorization": f"Bearer {WEB}"}) as live:
            listening = asyncio.create_task(frames(live, seen))
            await eventually(lambda: live.counter("delivered", "works") > 20)
            await everything_fails(live, server)
            await strangers_knock(live)
            for bad in BAD_FILES:
                path.write_text(bad, encoding="utf-8")
                live.daemon.reload()
            await eventually(lambda: live.counter("crashed", "crashes"))
            await eventually(lambda: live.counter("pull_faults", "alone"))
            before = live.counter("delivered", "works")
            await eventually(lambda: live.counter("delivered", "works") > before)
            await eventually(lambda: len(server.alerts) > 1)
            places = {name: await live.text(name) for name in
                      ("/api/status", "/api/events?limit=1000", "/metrics", "/openapi.json", "/readyz", "/")
                      }  # fmt: skip
            assert places["/api/events?limit=1000"].count('"kind":"config"') == len(BAD_FILES)
        await listening
        told = "\n".join(str(alert) for alert in server.alerts)
    out, err = capfd.readouterr()
    assert len(seen) > 3
    assert '"type":"event"' in "".join(seen)
    assert "ZeroDivisionError" in out + err
    places |= {"frames": "\n".join(seen), "alerts": told, "logs": out + err}
    leaks = [leak for place, text in places.items() for leak in found_in(place, text)]
    assert leaks == []


async def test_no_secret_is_in_the_console_log_of_a_crash(capfd: pytest.CaptureFixture[str]) -> None:
    async with world(rate=5) as server:
        lane = secret_lane(server.url, sink="tests.e2e.broken_ends:BrokenSink")
        async with running(settings_tree({"crashes": lane}, daemon={"log_format": "console"})) as live:
            await eventually(lambda: live.counter("worker_crashes", "crashes"))
            server.world.change({"rate": 0})
    logged = "".join(capfd.readouterr())
    assert "ZeroDivisionError" in logged
    assert found_in("logs", logged) == []


async def test_a_wrong_wecom_key_is_said_without_the_key(capfd: pytest.CaptureFixture[str]) -> None:
    async with world(wecom_errcode=93000, credits=0) as server:
        async with running(secret_tree(server), None, {"Authorization": f"Bearer {WEB}"}) as live:
            await eventually(lambda: any(event.kind == "alert" for event in live.daemon.bus.recent(1000)))
            event = (await live.events("alert"))[-1]
            assert "93000" in event["detail"]["error"]
            assert found_in("events", await live.text("/api/events")) == []
        assert server.world.truth()["alerts"] == 0
    assert found_in("logs", "".join(capfd.readouterr())) == []
