"""The WebSocket feed."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from feed_client import closing_code, command, eventually, feed_of, receive

from pipeline.config import WebConfig
from pipeline.errors import CommandError
from pipeline.web import feed as feed_module
from pipeline.web.access import AccessRules
from pipeline.web.app import WebServer
from pipeline.web.feed import STEPS_OF_A_STAGE, STEPS_PER_PERIOD, Feed
from pipeline.web.history import FIELDS

TOKEN = "canary-token"


async def test_hello_brings_status_events_steps_and_history(http, daemon):
    daemon.publish(reason="manual")
    daemon.lanes["shopee"].step("query", "t-1", at=2.0)
    daemon.lanes["lazada"].step("pull", "t-0", at=1.0)
    async with http.ws_connect("/ws") as socket:
        first = await socket.receive_json()
    assert first["type"] == "hello"
    data = first["data"]
    assert set(data) == {"status", "events", "steps", "history", *data["status"]}
    assert set(data["status"]["lanes"]) == {"shopee", "lazada"}
    assert data["lanes"] == data["status"]["lanes"], "it reads like stats, with more"
    assert data["events"][0]["detail"] == {"reason": "manual"}
    assert [step["trace_id"] for step in data["steps"]] == ["t-0", "t-1"]
    assert data["history"]["fields"] == list(FIELDS)


async def test_hello_shows_a_quiet_lanes_steps_beside_those_of_busy_ones(http, daemon):
    daemon.lanes["shopee"].step("callback", "quiet", at=0.0)
    for number in range(400):
        daemon.lanes["lazada"].step("query", f"busy-{number}", at=number)
    async with http.ws_connect("/ws") as socket:
        steps = (await receive(socket, "hello"))["data"]["steps"]
    assert [step["trace_id"] for step in steps][:2] == ["quiet", "busy-360"]
    assert len(steps) == 1 + STEPS_OF_A_STAGE


async def test_hello_has_a_bound_however_many_lanes_there_are(http, daemon, monkeypatch):
    monkeypatch.setattr(feed_module, "STEPS_IN_HELLO", 10)
    for lane in daemon.lanes.values():
        for number in range(20):
            lane.step("pull", f"{lane.name}-{number}", at=number)
    async with http.ws_connect("/ws") as socket:
        steps = (await receive(socket, "hello"))["data"]["steps"]
    assert sorted(step["lane"] for step in steps) == ["lazada"] * 5 + ["shopee"] * 5


async def test_stats_come_every_second_with_the_whole_status(http):
    async with http.ws_connect("/ws") as socket:
        first = (await receive(socket, "stats"))["data"]
        second = (await receive(socket, "stats"))["data"]
    assert set(first["lanes"]) == {"shopee", "lazada"}
    assert 0.7 < second["now"] - first["now"] < 1.5


async def test_an_event_comes_at_once(http, daemon):
    async with http.ws_connect("/ws") as socket:
        await receive(socket, "hello")
        daemon.publish(reason="credit", odd={1: object})
        event = await receive(socket, "event", within=0.5)
    assert event["data"]["detail"]["reason"] == "credit"


async def test_steps_come_as_a_list_of_at_most_fifty_with_a_share_for_every_stage(http, daemon):
    async with http.ws_connect("/ws") as socket:
        await receive(socket, "hello")
        lane = daemon.lanes["shopee"]
        for number in range(400):
            lane.step("query", f"q-{number}", at=number)
        lane.step("callback", "c-0", at=0.5)
        steps = (await receive(socket, "ticket"))["data"]
    assert len(steps) == STEPS_PER_PERIOD
    assert "c-0" in [step["trace_id"] for step in steps]
    assert "q-399" in [step["trace_id"] for step in steps]
    assert steps == sorted(steps, key=lambda step: step["at"])


async def test_stages_are_listened_to_only_while_somebody_watches(http, daemon):
    lane = daemon.lanes["shopee"]
    assert lane.listeners == []
    async with http.ws_connect("/ws") as one, http.ws_connect("/ws") as two:
        await receive(one, "hello")
        await receive(two, "hello")
        assert len(lane.listeners) == 1
    await eventually(lambda: not lane.listeners)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("stopPulling", ("pause", "panel 127.0.0.1", "", None)),
        ("startPulling", ("resume", "panel 127.0.0.1", "")),
        ("stopScheduler", ("stop", "panel 127.0.0.1")),
        ("startScheduler", ("start", "panel 127.0.0.1")),
    ],
)
async def test_each_command_reaches_its_lane_and_is_acked_with_its_id(http, daemon, name, call):
    async with http.ws_connect("/ws") as socket:
        ack = await command(socket, command=name, lane="shopee", id=7)
    assert ack == {"type": "ack", "id": 7, "data": {"id": 7, "ok": True}}
    assert daemon.lanes["shopee"].calls == [call]
    assert daemon.lanes["lazada"].calls == []


@pytest.mark.parametrize("identity", [0, -1, 1.5, "a", None])
async def test_an_ack_has_the_very_id_of_its_command(http, identity):
    async with http.ws_connect("/ws") as socket:
        ack = await command(socket, command="stopPulling", id=identity)
    assert (ack["id"], ack["data"]) == (identity, {"id": identity, "ok": True})


async def test_a_command_without_a_lane_reaches_all_and_may_carry_a_reason(http, daemon):
    async with http.ws_connect("/ws") as socket:
        ack = await command(socket, command="stopPulling", lane=None, id="a", **{"for": 5, "reason": "lunch"})
    assert ack["data"] == {"id": "a", "ok": True}
    for lane in daemon.lanes.values():
        assert lane.calls == [("pause", "panel 127.0.0.1", "lunch", 5.0)]


async def test_shutdown_is_a_command_of_the_whole_process(http, daemon):
    async with http.ws_connect("/ws") as socket:
        refused = await command(socket, command="shutdown", lane="shopee", id=1)
        assert daemon.shutdowns == []
        done = await command(socket, command="shutdown", id=2)
    assert (refused["data"]["ok"], done["data"]["ok"]) == (False, True)
    assert daemon.shutdowns == ["panel 127.0.0.1"]


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("{", "bad_request", "JSON"),
        ("[1]", "bad_request", "object"),
        ('{"type": "dance", "id": 1}', "bad_request", "type"),
        ('{"id": 1}', "bad_request", "type"),
        ('{"type": "command", "id": 1}', "bad_request", "command"),
        ('{"type": "command", "command": "explode", "id": 1}', "bad_request", "command"),
        ('{"type": "command", "command": ["x"], "id": 1}', "bad_request", "command"),
        ('{"type": "command", "command": "stopPulling", "lane": 5, "id": 1}', "bad_request", "lane"),
        ('{"type": "command", "command": "stopPulling", "lane": "x", "id": 1}', "unknown_lane", "x"),
        ('{"type": "command", "command": "stopPulling", "lanes": "x", "id": 1}', "bad_request", "lanes"),
        ('{"type": "command", "command": "stopPulling", "id": {}}', "bad_request", "id"),
        ('{"type": "command", "command": "stopPulling", "id": true}', "bad_request", "id"),
    ],
)
async def test_a_wrong_message_is_acked_with_its_error_and_the_line_stays(http, daemon, text, code, named):
    async with http.ws_connect("/ws") as socket:
        await socket.send_str(text)
        ack = await receive(socket, "ack")
        assert ack["data"]["ok"] is False
        assert ack["data"]["error"]["code"] == code
        assert named in ack["data"]["error"]["message"]
        assert ack["data"]["id"] == (1 if '"id": 1' in text else None)
        assert daemon.lanes["shopee"].calls == []
        assert (await command(socket, command="stopPulling", id=2))["data"]["ok"] is True


async def test_a_binary_message_is_refused_and_the_line_stays(http):
    async with http.ws_connect("/ws") as socket:
        await socket.send_bytes(b"{}")
        assert (await receive(socket, "ack"))["data"]["ok"] is False
        await receive(socket, "stats")


async def test_a_lanes_refusal_and_a_bug_are_told_apart_and_the_bug_says_nothing(http, daemon, monkeypatch):
    async with http.ws_connect("/ws") as socket:
        await receive(socket, "hello")

        def buggy(by: str, reason: str = "", for_seconds: float | None = None) -> None:
            raise RuntimeError("canary")

        monkeypatch.setattr(daemon.lanes["shopee"], "pause", buggy)
        bug = await command(socket, command="stopPulling", lane="shopee", id=1)
        daemon.lanes["lazada"].fails = CommandError("draining")
        refusal = await command(socket, command="stopPulling", lane="lazada", id=2)
    assert bug["data"]["error"] == {"code": "internal_error", "message": "internal error"}
    assert refusal["data"]["error"] == {"code": "conflict", "message": "draining"}


async def test_a_plain_get_of_the_feed_is_426(http):
    async with http.get("/ws") as response:
        assert response.status == 426
        assert (await response.json())["error"]["code"] == "upgrade_required"


async def test_the_token_may_come_as_a_header(serve):
    http = await serve(token=TOKEN)
    async with http.ws_connect("/ws", headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
        await receive(socket, "hello")


async def test_a_wrong_header_is_401_before_the_connection_opens(serve):
    http = await serve(token=TOKEN)
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect("/ws", headers={"Authorization": "Bearer wrong"})
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "first", ['{"type": "auth", "token": "canary-token"}', '{"token": "canary-token"}', "canary-token"]
)
async def test_the_token_may_come_as_the_first_message_and_nothing_is_said_before(serve, daemon, first):
    http = await serve(token=TOKEN)
    async with http.ws_connect("/ws") as socket:
        daemon.publish(reason="secret")
        with pytest.raises(TimeoutError):
            await socket.receive(timeout=0.2)
    async with http.ws_connect("/ws") as socket:
        await socket.send_str(first)
        await receive(socket, "hello")


@pytest.mark.parametrize(
    "first",
    [
        '{"type": "auth", "token": "wrong"}',
        '{"type": "auth"}',
        '{"type": "auth", "token": 5}',
        '{"type": "auth", "token": ""}',
        "canary",
        "",
        '{"type": "command", "command": "shutdown", "token": "canary-token"}',
        "{",
        "[]",
    ],
)
async def test_any_other_first_message_is_closed_with_4401_and_served_nothing(
    serve, daemon, monkeypatch, first
):
    served: list[object] = []
    monkeypatch.setattr(Feed, "_serve", lambda feed, client: served.append(client))
    http = await serve(token=TOKEN)
    async with http.ws_connect("/ws") as socket:
        await socket.send_str(first)
        assert await closing_code(socket) == 4401
    await eventually(lambda: not feed_of(daemon)._strangers)
    assert served == []


async def test_a_client_that_never_shows_its_token_is_closed_with_4401(serve, monkeypatch):
    monkeypatch.setattr(feed_module, "AUTH_TIMEOUT", 0.1)
    http = await serve(token=TOKEN)
    async with http.ws_connect("/ws") as socket:
        assert await closing_code(socket) == 4401


async def test_closing_the_server_tells_its_clients(daemon):
    server = WebServer(daemon, WebConfig(port=0))
    await server.start()
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session,
        session.ws_connect("/ws") as socket,
    ):
        await receive(socket, "hello")
        closing = asyncio.create_task(server.close())
        assert await closing_code(socket) == aiohttp.WSCloseCode.GOING_AWAY
        await closing


async def test_an_event_that_cannot_be_written_does_not_reach_its_publisher(http, daemon):
    async with http.ws_connect("/ws") as socket:
        await receive(socket, "hello")
        daemon.publish(number=1 << 80)
        daemon.publish(number=5)
        assert (await receive(socket, "event"))["data"]["detail"] == {"number": 5}


async def test_a_lane_that_cannot_say_how_it_is_does_not_end_the_feed(daemon):
    feed = Feed(daemon, AccessRules(WebConfig()))
    daemon.lanes["shopee"].fails = RuntimeError("bug")
    feed.run_once()
    daemon.lanes["shopee"].fails = None
    feed.run_once()
    assert len(feed._history.as_dict()["points"]) == 1


async def test_a_greeting_that_fails_closes_the_connection_politely(http, daemon):
    daemon.lanes["shopee"].fails = RuntimeError("canary")
    async with http.ws_connect("/ws") as socket:
        assert await closing_code(socket) == aiohttp.WSCloseCode.INTERNAL_ERROR


async def test_the_status_is_computed_once_a_second_however_many_watch(http, daemon):
    async with http.ws_connect("/ws") as one, http.ws_connect("/ws") as two, http.ws_connect("/ws") as three:
        for socket in (one, two, three):
            await receive(socket, "stats")
        before = daemon.lanes["shopee"].status_calls
        for socket in (one, two, three):
            await receive(socket, "stats")
    assert daemon.lanes["shopee"].status_calls - before <= 2
