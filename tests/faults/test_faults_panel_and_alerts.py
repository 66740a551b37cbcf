"""Faults 23 and 25: those who only watch must not be felt by those who work."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import WSCloseCode

from pipeline.alerts import wecom
from pipeline.events import Event, Kind
from pipeline.web import client
from pipeline.web.app import FEED
from tests.e2e.harness import LANE, PATIENCE, eventually
from tests.faults.fault_proxy import Door
from tests.faults.faulty_world import Stage, stage

#: With a word, or without where the flood left no room for one.
HUNG_UP = {WSCloseCode.POLICY_VIOLATION, WSCloseCode.ABNORMAL_CLOSURE}
#: Calls here take a hundredth of a second on an idle machine; in a pipeline that stood still they take this.
P99_MAX = PATIENCE / 3


@asynccontextmanager
async def deaf_client(port: int) -> AsyncIterator[socket.socket]:
    """Opens the feed and never reads it."""
    loop = asyncio.get_running_loop()
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setblocking(False)
        await loop.sock_connect(raw, ("127.0.0.1", port))
        request = (
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        await loop.sock_sendall(raw, request.encode())
        yield raw


async def flood(url: str) -> int | None:
    """Commands without end; the code with which the daemon hangs up."""
    async with aiohttp.ClientSession(url) as http, http.ws_connect("/ws") as ws:

        async def send() -> None:
            while True:
                await ws.send_json({"type": "command", "command": "nonsense", "id": 1})

        sending = asyncio.create_task(send())
        async for _ in ws:
            pass
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return ws.close_code


async def keeps_listening(url: str, heard: list[str]) -> None:
    async with aiohttp.ClientSession(url) as http, http.ws_connect("/ws") as ws:
        async for message in ws:
            heard.append(message.json()["type"])  # noqa: PERF401 (others read the list meanwhile)


def publish_bulk(play: Stage) -> None:
    """Far more news at once than a line to somebody who does not read can hold."""
    bus, now = play.live.daemon.bus, play.live.daemon.clock.now()
    for number in range(200):
        bus.publish(Event(now, LANE, Kind.CONFIG, detail={"number": number, "bulk": "x" * 50_000}))


async def test_23_a_client_that_floods_and_one_that_never_reads_are_dropped_and_the_pipeline_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "SEND_TIMEOUT", 1.0)
    monkeypatch.setattr(client, "CLOSE_TIMEOUT", 0.2)
    monkeypatch.setattr(client, "REFUSALS_MAX", 30)
    async with stage(settings={"web": {"token": ""}, "daemon": {"log_level": "warning"}}) as play:
        port = play.live.daemon.web.port
        url, feed = f"http://127.0.0.1:{port}", play.live.daemon.web._runner.app[FEED]
        heard: list[str] = []
        panel = asyncio.create_task(keeps_listening(url, heard))
        await eventually(lambda: "stats" in heard)
        async with deaf_client(port):
            await eventually(lambda: feed.client_count == 2)
            flooding = [asyncio.create_task(flood(url)) for _ in range(3)]
            await eventually(lambda: feed.client_count == 5)
            publish_bulk(play)
            await play.delivers(100)
            async with asyncio.timeout(PATIENCE):
                assert set(await asyncio.gather(*flooding)) <= HUNG_UP
            await eventually(lambda: feed.client_count == 1)
        # The one that behaves has heard it all and still hears.
        assert heard.count("event") >= 200
        seen = len(heard)
        await eventually(lambda: "stats" in heard[seen:])
        await play.delivers(50)
        stages: dict[str, Any] = play.live.status()["stages"]
        assert max(stages[name]["latency"]["p99"] for name in ("query", "callback")) < P99_MAX
        truth = await play.all_ended()
        assert truth["delivered"] == truth["handed_out"]
    await panel


@pytest.mark.parametrize("how", ["down", "slow", "refusing"])
async def test_25_wecom_down_slow_or_refusing_blocks_nothing_and_is_retried_within_its_budget(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "slow":
        monkeypatch.setattr(wecom, "TIMEOUT", 1.5)
    monkeypatch.setattr(wecom, "BACK_OFF", 0.2)
    monkeypatch.setattr(wecom, "RATE_LIMIT_PAUSE", 0.3)
    async with stage() as play:
        play.wecom.door = {"down": Door.RESET, "slow": Door.HALF_OPEN}.get(how, Door.OPEN)
        play.server.world.change({"wecom_errcode": 45009 if how == "refusing" else 0})
        calls: list[float] = []
        post = play.live.daemon.alerts._post

        async def counted(*arguments: Any) -> tuple[int, bytes]:
            calls.append(play.live.daemon.clock.monotonic())
            return await post(*arguments)

        monkeypatch.setattr(play.live.daemon.alerts, "_post", counted)
        # Something worth an alert begins and ends, and is not held up by nobody hearing of it.
        play.server.world.change({"credits": 0})
        await eventually(lambda: "credit" in play.live.holds("query"))
        play.server.world.change({"credits": None})
        await play.delivers(50)
        await eventually(lambda: len(calls) >= 2)
        await play.delivers(50)
        assert list(play.server.alerts) == []
        play.wecom.heal()
        play.server.world.change({"wecom_errcode": 0})
        await eventually(lambda: play.told("credit", "recover"), why=lambda: list(play.server.alerts))
        assert play.all_told() == [("credit", "fire"), ("credit", "recover")]
        assert len(calls) <= 2 * wecom.TRIES_MAX
        truth = await play.all_ended()
        assert truth["delivered"] == truth["handed_out"]
