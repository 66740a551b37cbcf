"""The world that the benches measure against answers as the contract says, over a real socket."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp
import pytest

PAGE_BYTES = 100_000


def _load() -> ModuleType:
    file = Path(__file__).resolve().parents[1] / "scripts" / "benchmarks" / "world.py"
    spec = importlib.util.spec_from_file_location("bench_world", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bench = _load()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await bench.listen(bench.World(PAGE_BYTES))
    yield bench.port_of(server)
    server.close()
    await server.wait_closed()


@pytest.fixture
async def session(port: int) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        yield session


async def _get(session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(path) as answer:
        assert answer.status == 200
        return await answer.json()


async def _pull(session: aiohttp.ClientSession, limit: int) -> list[dict[str, Any]]:
    pulled = await _get(session, f"/api/get/tasks?phone=1&limit={limit}")
    assert pulled["success"] is True
    return [task["data"] for task in pulled["tasks"]]


async def test_pull_hands_out_fresh_tickets_up_to_the_cap(session: aiohttp.ClientSession) -> None:
    tickets = await _pull(session, 3) + await _pull(session, 200)
    assert len(tickets) == 3 + 50
    assert len({ticket["good_id"] for ticket in tickets}) == len(tickets)
    assert len({ticket["trace_id"] for ticket in tickets}) == len(tickets)
    wanted = {"id", "shop_id", "good_id", "country", "trace_id", "type", "created_at", "token"}
    assert all(set(ticket) == wanted for ticket in tickets)


async def test_tickets_are_stamped_now_in_shanghai(session: aiohttp.ClientSession) -> None:
    zone = ZoneInfo("Asia/Shanghai")
    (ticket,) = await _pull(session, 1)
    stamp = datetime.strptime(ticket["created_at"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=zone)
    assert abs((datetime.now(zone) - stamp).total_seconds()) < 5


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_page_has_exactly_its_size_and_an_item(size: int) -> None:
    page = bench.page(size)
    assert len(page) == size
    answer = json.loads(page)
    assert answer["_success"] is True
    assert any("\u4e00" <= letter <= "\u9fff" for letter in answer["response"]["data"]["item"]["title"])


async def test_query_answers_with_the_page(session: aiohttp.ClientSession) -> None:
    async with session.post("/request/shopee/pdp", json={"item_id": "1"}) as answer:
        assert await answer.read() == bench.page(PAGE_BYTES)


async def test_callback_is_counted_with_its_bytes_and_the_first_is_kept(
    session: aiohttp.ClientSession,
) -> None:
    bodies = [json.dumps({"result": letter * 150_000}).encode() for letter in "ab"]
    for body in bodies:
        async with session.post("/api/task/submit/v2", data=body) as answer:
            assert await answer.json() == {"code": 200, "data": {"code": "SUCCESS"}}
    counts = await _get(session, "/counts")
    assert counts["callbacks"] == 2
    assert counts["callback_bytes"] == sum(map(len, bodies))
    async with session.get("/sample") as answer:
        assert await answer.read() == bodies[0]


async def test_counts_tell_each_kind_apart(session: aiohttp.ClientSession) -> None:
    await _pull(session, 7)
    async with session.post("/request/shopee/pdp", json={}):
        pass
    async with session.get("/nowhere") as answer:
        assert answer.status == 404
    counts = await _get(session, "/counts")
    assert (counts["pulls"], counts["tickets"], counts["queries"], counts["strays"]) == (1, 7, 1, 1)


async def _talk(port: int, pieces: list[bytes], until: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        return await asyncio.wait_for(reader.readuntil(until), 5)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_requests_may_come_in_any_pieces(port: int) -> None:
    body = b"x" * 10
    head = b"POST /api/task/submit/v2 HTTP/1.1\r\nHost: x\r\nCONTENT-LENGTH: 10\r\n\r\n"
    whole = head + body + b"GET /counts HTTP/1.1\r\nHost: x\r\n\r\n"
    cuts = [0, 5, len(head) - 2, len(head) + 4, len(whole) - 1, len(whole)]
    pieces = [whole[start:end] for start, end in itertools.pairwise(cuts)]
    answers = await _talk(port, pieces, b'"strays": 0}')
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert b'"callback_bytes": 10' in answers


async def test_a_body_of_unknown_length_is_refused(port: int) -> None:
    request = b"POST /api/task/submit/v2 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
    assert b"411" in await _talk(port, [request], b"\r\n\r\n")
