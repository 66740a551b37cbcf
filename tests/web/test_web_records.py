"""What the journal remembers, over the wire: traces, and the minutes behind the charts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import jsonschema_rs
import pytest
from fake_daemon import FakeDaemon
from yarl import URL

from pipeline.clock import SystemClock
from pipeline.config import JournalConfig
from pipeline.errors import JournalFault
from pipeline.journal.journal import Journal
from pipeline.ticket import Answer, Outcome, Ticket, Verdict
from pipeline.web import records
from pipeline.web.schemas import SCHEMAS

LANE = "shopee"
HOUR, DAY = 3600, 86_400
TOKEN = "canary-token"

Get = Callable[..., Awaitable[tuple[int, Any]]]


class SetClock(SystemClock):
    """The wall clock stands; the loop's goes on."""

    def now(self) -> float:
        return 1_790_000_123.5


@pytest.fixture
async def journal(daemon: FakeDaemon, tmp_path: Path) -> AsyncIterator[Journal]:
    journal = Journal(tmp_path / "journal.db", JournalConfig(), SystemClock(), daemon.bus)
    await journal.open()
    daemon.journal = journal
    yield journal
    await journal.close()


@pytest.fixture
def get(http: aiohttp.ClientSession) -> Get:
    async def fetch(path: str, **query: str) -> tuple[int, Any]:
        async with http.get(path, params=query) as response:
            return response.status, await response.json()

    return fetch


def delivered(journal: Journal, trace: str, key: str = "7:8:sg") -> None:
    """Asked twice, called back once."""
    ticket = Ticket(key, trace, None, token="canary-ticket-token", created=SystemClock().now() - 2)
    journal.pulled(LANE, ticket)
    for verdict in (Verdict.PROCESSING, Verdict.ANSWERED):
        ticket.queries += 1
        journal.asking(ticket)
        journal.answered(ticket, Answer(verdict, b"{}"))
    journal.calling(ticket)
    ticket.callbacks += 1
    ticket.outcome = Outcome.DELIVERED
    journal.ended(LANE, ticket, "callback")


def matches(name: str, body: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    jsonschema_rs.validator_for(schema).validate(body)


def refusal(answer: tuple[int, Any]) -> tuple[int, str]:
    status, body = answer
    matches("Error", body)
    return status, body["error"]["code"]


# -- traces --------------------------------------------------------------------------------------------


async def test_a_trace_tells_every_step_in_order_also_the_one_of_just_now(journal: Journal, get: Get):
    delivered(journal, "t1")
    status, body = await get("/api/trace/t1")
    assert status == 200
    matches("Trace", body)
    assert (body["trace_id"], body["left_out"]) == ("t1", 0)
    assert [(step["stage"], step["what"], step["attempt"]) for step in body["steps"]] == [
        ("pull", "queued", 0),
        ("query", "asking", 1),
        ("query", "processing", 1),
        ("query", "asking", 2),
        ("query", "answered", 2),
        ("callback", "calling", 1),
        ("callback", "delivered", 1),
    ]
    assert {(step["lane"], step["key"]) for step in body["steps"]} == {(LANE, "7:8:sg")}
    assert [step["at"] for step in body["steps"]] == sorted(step["at"] for step in body["steps"])
    assert all(1.5 < step["age"] < 30 for step in body["steps"])


async def test_a_trace_gives_no_token_away(journal: Journal, http: aiohttp.ClientSession):
    delivered(journal, "t1")
    async with http.get("/api/trace/t1") as response:
        assert "canary" not in await response.text()


@pytest.mark.parametrize("trace", ["a/b", "a b", "100%", "追踪", "a?b#c", "{x}", "a\nb", "x" * 512])
async def test_a_trace_id_may_hold_anything_that_upstream_may_send(
    journal: Journal, http: aiohttp.ClientSession, trace: str
):
    delivered(journal, trace)
    async with http.get(URL(f"/api/trace/{quote(trace, safe='')}", encoded=True)) as response:
        assert response.status == 200
        assert (await response.json())["trace_id"] == trace


async def test_an_item_tells_of_all_its_tickets_and_of_no_others(journal: Journal, get: Get):
    for trace, key in (("t1", "7:8:sg"), ("t2", "7:8:my"), ("t3", "7:80:sg"), ("t4", "77:8:sg")):
        delivered(journal, trace, key)
    status, body = await get("/api/traces", shop="7", item="8")
    assert status == 200
    matches("Traces", body)
    assert (body["shop"], body["item"]) == ("7", "8")
    assert list(dict.fromkeys(step["trace_id"] for step in body["steps"])) == ["t1", "t2"]


async def test_the_longest_names_that_are_allowed_fit_into_a_request(journal: Journal, get: Get):
    delivered(journal, "t1", f"{'𖸞' * 200}:{'𖸞' * 200}:sg")
    assert (await get("/api/traces", shop="𖸞" * 200, item="𖸞" * 200))[0] == 200
    assert refusal(await get("/api/trace/" + "𖸞" * 512)) == (404, "not_found")


async def test_what_is_not_kept_is_404(journal: Journal, get: Get):
    assert refusal(await get("/api/trace/nobody")) == (404, "not_found")
    assert refusal(await get("/api/traces", shop="7", item="%")) == (404, "not_found")


async def test_of_too_many_steps_the_newest_are_told(journal: Journal, get: Get, monkeypatch):
    monkeypatch.setattr(records, "STEPS_MAX", 3)
    delivered(journal, "t1")
    _, body = await get("/api/trace/t1")
    assert [step["what"] for step in body["steps"]] == ["answered", "calling", "delivered"]
    assert body["left_out"] == 4


@pytest.mark.parametrize(
    ("path", "query", "named"),
    [
        ("/api/trace/" + "x" * 513, {}, "trace_id"),
        ("/api/trace/t1", {"lane": LANE}, "lane"),
        ("/api/traces", {}, "shop"),
        ("/api/traces", {"shop": "7"}, "item"),
        ("/api/traces", {"shop": "7", "item": ""}, "item"),
        ("/api/traces", {"shop": "7", "item": "8" * 201}, "item"),
        ("/api/traces", {"shop": "7", "item": "8", "trace": "t1"}, "trace"),
        ("/api/history", {}, "lane"),
        ("/api/history", {"lane": LANE, "range": "2h"}, "range"),
        ("/api/history", {"lane": LANE, "range": ""}, "range"),
    ],
)
async def test_what_is_missing_too_long_or_unknown_is_400_and_named(
    journal: Journal, get: Get, path: str, query: dict[str, str], named: str
):
    status, body = await get(path, **query)
    assert (status, body["error"]["code"]) == (400, "bad_request")
    assert named in body["error"]["message"]


@pytest.mark.parametrize(
    "target", [b"/api/trace/\xff", b"/api/trace/%FF", b"/api/traces?shop=\xff&item=%ED%A0%80"]
)
async def test_bytes_that_are_no_text_are_not_a_fault_of_ours(
    journal: Journal, http: aiohttp.ClientSession, target: bytes
):
    reader, writer = await asyncio.open_connection("127.0.0.1", http._base_url.port)
    writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    status = int((await reader.read()).split()[1])
    writer.close()
    assert status in (400, 404)


# -- minutes -------------------------------------------------------------------------------------------


async def test_history_comes_in_steps_that_fit_the_range(daemon: FakeDaemon, journal: Journal, get: Get):
    daemon.clock = SetClock()
    now = int(daemon.clock.now())
    for minute in range(0, 2 * HOUR, 60):
        journal.minute(LANE, now - minute, {"counters": {"delivered": 1}, "latencies": {"query_p95": 0.5}})
    await journal.flush()
    for name, step, entries, each in (("5m", 60, 5, 1), ("1h", 60, 60, 1), ("24h", 300, 25, 5)):
        status, body = await get("/api/history", lane=LANE, range=name)
        assert status == 200
        matches("History", body)
        assert (body["lane"], body["step"], len(body["minutes"])) == (LANE, step, entries)
        whole = body["minutes"][1:-1]
        assert {entry["counters"]["delivered"] for entry in whole} == {each}
        assert {later["at"] - one["at"] for one, later in pairwise(whole)} == {step}
        assert body["minutes"][-1]["at"] <= now < body["minutes"][-1]["at"] + step


async def test_a_month_is_read_a_day_at_a_time_and_nothing_is_lost_or_cut_at_the_seams(
    daemon: FakeDaemon, journal: Journal, get: Get, monkeypatch
):
    daemon.clock = SetClock()
    spans: list[float] = []
    read = journal.history

    async def watched(lane: str, since: float, until: float, step: int = 60) -> list[dict[str, Any]]:
        spans.append(until - since)
        return await read(lane, since, until, step)

    monkeypatch.setattr(journal, "history", watched)
    for hour in range(31 * 24):
        journal.minute(LANE, daemon.clock.now() - hour * HOUR, {"counters": {"delivered": 1}})
    await journal.flush()
    _, body = await get("/api/history", lane=LANE, range="30d")
    assert set(spans) == {DAY}
    assert body["step"] == 7200
    assert len(body["minutes"]) == len({entry["at"] for entry in body["minutes"]}) == 360
    assert {entry["counters"]["delivered"] for entry in body["minutes"][:-1]} == {2}


async def test_history_is_of_one_lane_and_an_hour_unless_told(journal: Journal, daemon: FakeDaemon, get: Get):
    journal.minute("lazada", daemon.clock.now(), {"counters": {"delivered": 1}})
    await journal.flush()
    assert await get("/api/history", lane=LANE) == (200, {"lane": LANE, "step": 60, "minutes": []})
    assert len((await get("/api/history", lane="lazada"))[1]["minutes"]) == 1
    assert refusal(await get("/api/history", lane="nowhere")) == (404, "unknown_lane")


# -- trouble and access --------------------------------------------------------------------------------

PATHS = ("/api/trace/t1", "/api/traces?shop=7&item=8", f"/api/history?lane={LANE}")


@pytest.mark.parametrize("path", PATHS)
async def test_a_journal_that_is_off_is_404_and_said(get: Get, path: str):
    status, body = await get(path)
    assert (status, body["error"]["code"]) == (404, "journal_off")
    assert "journal.level" in body["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_journal_that_cannot_be_read_is_503(journal: Journal, get: Get, path: str, monkeypatch):
    async def broken(*_: Any) -> Any:
        raise JournalFault("journal: journal.db: read or write error")

    monkeypatch.setattr(journal._database, "read", broken)
    status, body = await get(path)
    assert (status, body["error"]["code"]) == (503, "journal")
    assert "read or write error" in body["error"]["message"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_journal_that_is_closed_already_is_503(journal: Journal, get: Get, path: str):
    await journal.close()
    assert refusal(await get(path)) == (503, "journal")


@pytest.mark.parametrize("path", PATHS)
async def test_the_token_is_asked_for(serve, journal: Journal, path: str):
    delivered(journal, "t1")
    http = await serve(token=TOKEN)
    async with http.get(path) as response:
        assert response.status == 401
    async with http.get(path, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        assert response.status == 200
        assert response.headers["Cache-Control"] == "no-store"
    async with http.get(path, headers={"Host": "evil.example"}) as response:
        assert response.status == 421


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_but_reading_is_allowed(journal: Journal, http: aiohttp.ClientSession, path: str):
    async with http.post(path) as response:
        assert (response.status, response.headers["Allow"]) == (405, "GET,HEAD")
