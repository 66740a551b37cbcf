"""What the feed does not let a client do to it."""

from __future__ import annotations

import asyncio
import socket as sockets
from collections.abc import AsyncIterator

import aiohttp
import pytest
from feed_client import closing_code, eventually, feed_of, receive

from pipeline.config import WebConfig
from pipeline.web import client as client_module
from pipeline.web import feed as feed_module
from pipeline.web.access import AccessRules
from pipeline.web.client import FloodGuard, Outbox
from pipeline.web.feed import Feed
from pipeline.web.history import HISTORY_MAX

TOKEN = "canary-token"


async def test_more_than_twenty_commands_a_second_are_refused_and_not_carried_out(http, daemon):
    async with http.ws_connect("/ws") as socket:
        for number in range(30):
            await socket.send_json({"type": "command", "command": "startPulling", "id": number})
        acks = [(await receive(socket, "ack"))["data"] for _ in range(30)]
    refused = [ack for ack in acks if not ack["ok"]]
    assert 5 <= len(refused) <= 10
    assert {ack["error"]["code"] for ack in refused} == {"too_many_requests"}
    assert len(daemon.lanes["shopee"].calls) == 30 - len(refused)


async def test_a_client_that_goes_on_flooding_is_dropped(http, daemon, monkeypatch):
    monkeypatch.setattr(client_module, "REFUSALS_MAX", 5)
    async with http.ws_connect("/ws") as socket:
        for _ in range(60):
            await socket.send_str("{}")
        assert await closing_code(socket) == aiohttp.WSCloseCode.POLICY_VIOLATION


async def test_a_message_above_64_kilobytes_ends_the_connection(http):
    async with http.ws_connect("/ws") as socket:
        await socket.send_str("x" * 70_000)
        assert await closing_code(socket) == aiohttp.WSCloseCode.MESSAGE_TOO_BIG


async def test_nothing_is_compressed(http):
    async with http.ws_connect("/ws", compress=15) as socket:
        assert not socket.compress


async def test_the_33rd_client_is_503_and_a_place_becomes_free_again(http, daemon, monkeypatch):
    monkeypatch.setattr(feed_module, "CLIENTS_MAX", 2)
    one = await http.ws_connect("/ws")
    two = await http.ws_connect("/ws")
    for socket in (one, two):
        await receive(socket, "hello")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect("/ws")
    assert refused.value.status == 503
    await one.close()
    await eventually(lambda: feed_of(daemon).client_count == 1)
    three = await http.ws_connect("/ws")
    await receive(three, "hello")


def test_thirty_two_clients_and_the_other_limits_are_the_contracts():
    assert (feed_module.CLIENTS_MAX, feed_module.MESSAGE_MAX, feed_module.HEARTBEAT) == (32, 65_536, 30)
    assert (feed_module.AUTH_TIMEOUT, client_module.OUTBOX_MAX, client_module.SEND_TIMEOUT) == (5, 256, 30)


async def test_strangers_do_not_take_the_places_of_clients(serve, monkeypatch):
    monkeypatch.setattr(feed_module, "CLIENTS_MAX", 2)
    http = await serve(token=TOKEN)
    stranger = await http.ws_connect("/ws")
    headers = {"Authorization": f"Bearer {TOKEN}"}
    known = [await http.ws_connect("/ws", headers=headers) for _ in range(2)]
    for socket in known:
        await receive(socket, "hello")
    await stranger.close()


async def test_strangers_that_say_nothing_give_way_to_whoever_comes(serve, monkeypatch):
    monkeypatch.setattr(feed_module, "CLIENTS_MAX", 2)
    http = await serve(token=TOKEN)
    silent = [await http.ws_connect("/ws") for _ in range(2)]
    async with http.ws_connect("/ws") as operator:
        await operator.send_str(TOKEN)
        await receive(operator, "hello")
        assert (await silent[0].receive()).type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    await silent[1].close()


async def test_a_client_that_never_reads_is_dropped_and_the_others_hear_everything(
    http, deaf, daemon, monkeypatch
):
    monkeypatch.setattr(client_module, "CLOSE_TIMEOUT", 0.2)
    async with http.ws_connect("/ws") as socket:
        await receive(socket, "hello")
        feed = feed_of(daemon)
        await eventually(lambda: feed.client_count == 2)
        for number in range(1200):
            daemon.publish(number=number, bulk="x" * 50_000)
            heard = await receive(socket, "event", within=5)
            assert heard["data"]["detail"]["number"] == number
            if feed.client_count == 1:
                break
        assert feed.client_count == 1


@pytest.fixture
async def deaf(http) -> AsyncIterator[sockets.socket]:
    """A client that opens the feed and never reads it."""
    with sockets.socket() as raw:
        await _open_feed(raw, http._base_url.port)
        yield raw


async def _open_feed(raw: sockets.socket, port: int) -> None:
    raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", port))
    await loop.sock_sendall(
        raw,
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
    )
    await loop.sock_recv(raw, 16)


async def test_a_send_that_stands_still_for_too_long_drops_the_client(deaf, daemon, monkeypatch):
    monkeypatch.setattr(client_module, "SEND_TIMEOUT", 0.2)
    monkeypatch.setattr(client_module, "CLOSE_TIMEOUT", 0.2)
    feed = feed_of(daemon)
    await eventually(lambda: feed.client_count == 1)
    (client,) = feed._clients
    for _ in range(200):  # below the outbox's limit: only the standstill can drop it
        daemon.publish(bulk="x" * 100_000)
    await eventually(lambda: not feed.client_count)
    # cut, not closed: a close would keep what was never read for as long as the client likes
    await eventually(lambda: client._transport.get_write_buffer_size() == 0)


async def test_history_goes_on_unwatched_keeps_five_minutes_and_serialises_nothing(daemon, monkeypatch):
    feed = Feed(daemon, AccessRules(WebConfig()))

    written: list[object] = []
    monkeypatch.setattr(feed_module, "dumps", written.append)
    daemon.lanes["shopee"].counters |= {"query_stale": 2, "credit_expired": 3, "queried": 7}
    for _ in range(HISTORY_MAX + 50):
        feed.run_once()
    assert written == []
    history = feed._history.as_dict()
    assert len(history["points"]) == HISTORY_MAX
    row = dict(zip(history["fields"], history["points"][-1]["lanes"]["shopee"], strict=True))
    assert (row["dropped"], row["queried"]) == (5, 7)
    assert (row["queued"], row["state"]) == (5, "running")
    assert (row["callbacks_pending"], row["callbacks_retrying"]) == (1, 0)


async def test_the_outbox_keeps_only_the_latest_stats_and_what_lasts_goes_first():
    outbox = Outbox()
    for number in range(5):
        outbox.put_stats(b"stats %d" % number)
        outbox.put_tickets(b"ticket %d" % number)
    assert outbox.put(b"event")
    assert [await outbox.take() for _ in range(3)] == [b"event", b"stats 4", b"ticket 4"]


async def test_the_outbox_says_no_at_its_limit():
    outbox = Outbox()
    assert all(outbox.put(b"x") for _ in range(256))
    assert not outbox.put(b"x")


class ManualClock:
    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at


def test_the_flood_guard_forgets_after_a_calm():
    clock = ManualClock()
    guard = FloodGuard(clock, per_second=2)
    assert [guard.admits() for _ in range(3)] == [True, True, False]
    clock.at += 1.0
    assert guard.admits()
    for _ in range(150):
        guard.admits()
    assert guard.hopeless
    clock.at += 60
    assert [guard.admits() for _ in range(3)] == [True, True, False]
    assert not guard.hopeless
