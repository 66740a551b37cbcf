"""Everything the outside can get wrong, through the whole daemon: named, counted, survived."""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web

from tests.e2e.harness import (
    LANE,
    PATIENCE,
    Live,
    assert_balanced,
    eventually,
    lane_tree,
    rss_bytes,
    running,
    settings_tree,
)

MB = 1 << 20
GOOD_PAGE = b'{"_success":true,"response":{"data":{"item":{"title":"x"}}}}'
BOMB = gzip.compress(b" " * (100 * MB), 9)
Headers = Mapping[str, str] | None
NO_TICKETS = b'{"success":false}'


def entry(shop: object, item: object = 1, **changes: Any) -> dict[str, Any]:
    data = {"shop_id": shop, "good_id": item, "country": "tw", "trace_id": f"{shop}-{item}", "token": "tok"}
    return {"type": "shopee", "data": {**data, **changes}}


def listed(*entries: Any) -> bytes:
    return orjson.dumps({"success": True, "tasks": list(entries)})


class BadWorld:
    """Hands out what the test wrote; the first answer for each shop is as bad as the shop's name says."""

    def __init__(self) -> None:
        self.pulls: deque[web.Response] = deque()
        self.bad_answers: dict[str, Any] = {}
        self.bad_receipts: dict[str, Any] = {}
        self.delivered: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.url = ""

    def hand_out(self, body: bytes, status: int = 200, headers: Headers = None) -> None:
        self.pulls.append(web.Response(body=body, status=status, headers=headers))

    async def pull(self, request: web.Request) -> web.StreamResponse:
        return self.pulls.popleft() if self.pulls else web.Response(body=NO_TICKETS)

    async def query(self, request: web.Request) -> web.StreamResponse:
        shop = str((await request.json())["shop_id"])
        return await self._once(self.bad_answers, shop, request) or web.Response(body=GOOD_PAGE)

    async def submit(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if set(body) != {"appVersion", "url", "result"}:
            self.wrong.append(f"fields {sorted(body)}")
        shop = body["url"].partition("&shop_id=")[2].partition("&")[0]
        bad = await self._once(self.bad_receipts, shop, request)
        if bad is None:
            self.delivered[shop] += 1
        return bad or web.Response(body=b'{"code":200}')

    async def _once(self, answers: dict[str, Any], shop: str, request: web.Request) -> Any:
        made = answers.pop(shop, None)
        return await made(request) if made else None

    async def nothing(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"null")


def said(body: bytes, status: int = 200, headers: Headers = None) -> Any:
    async def make(_: web.Request) -> web.Response:
        return web.Response(body=body, status=status, headers=headers)

    return make


def cut_off(begun: bytes = b"{", length: int = 1000) -> Any:
    async def make(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = length
        await response.prepare(request)
        await response.write(begun)
        assert request.transport is not None
        request.transport.close()
        return response

    return make


def dripping(total: int) -> Any:
    """Chunked, so that nobody can know the size beforehand."""

    async def make(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for _ in range(total // MB):
            await response.write(b" " * MB)
        return response

    return make


@asynccontextmanager
async def bad_world() -> AsyncIterator[BadWorld]:
    bad = BadWorld()
    app = web.Application(client_max_size=64 * MB)
    app.router.add_get("/api/get/tasks", bad.pull)
    app.router.add_post("/request/shopee/pdp", bad.query)
    app.router.add_post("/api/task/submit/v2", bad.submit)
    app.router.add_get("/api/curnum", bad.nothing)
    app.router.add_get("/tokens/credits", bad.nothing)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    bad.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield bad
        assert bad.wrong == []
    finally:
        await runner.cleanup()


def quick(url: str) -> dict[str, Any]:
    retries = {"retry": {"delay": 0.05, "delay_max": 0.1, "per_second": 1000}}
    return settings_tree({LANE: lane_tree(url, **retries, callback={"retry_interval": 0.05})})


async def all_done(live: Live, bad: BadWorld, pulled: int) -> dict[str, Any]:
    lane = live.daemon.lanes[LANE]
    await eventually(
        lambda: not bad.pulls and live.counter("pulled") == pulled and not lane.in_flight(), why=live.status
    )
    status = await live.lane()
    assert_balanced(status)
    assert status["state"] == "running"
    return status


async def still_works(live: Live, bad: BadWorld) -> None:
    bad.hand_out(listed(entry("afterwards")))
    await eventually(lambda: bad.delivered["afterwards"] == 1, why=live.status)


NOT_LISTS = (
    b"", b"<html>", b"[]", b"null", b"5", b'"x"', b'{"success":true,"tasks":[',
    b'{"success":true,"tasks":{}}',
    b'{"success":true,"tasks":5}', b'{"success":true,"task":[]}', b"{}", b"[" * 100_000, b"\xff\xfe\x00",
)  # fmt: skip
NOT_TICKETS: tuple[Any, ...] = (
    None, 1, "x", [], {}, {"data": None}, {"data": {}}, entry(None), entry([]), entry(True), entry(1.5),
    entry(""), entry("x" * 600), entry("no-country", country=None), entry("no-item", {}),
)  # fmt: skip


async def test_pulls_that_make_no_sense_stop_nothing() -> None:
    async with bad_world() as bad, running(quick(bad.url)) as live:
        for body in NOT_LISTS:
            bad.hand_out(body)
        for code in (400, 404, 408, 429, 500, 503, 302):
            bad.hand_out(listed(entry("not-taken")), code, headers={"Location": "/", "Retry-After": "0"})
        bad.hand_out(BOMB, headers={"Content-Encoding": "gzip"})
        bad.hand_out(b"no gzip at all", headers={"Content-Encoding": "gzip"})
        bad.hand_out(b" " * (20 * MB))
        bad.hand_out(listed(*NOT_TICKETS, entry("one-good")))
        status = await all_done(live, bad, len(NOT_TICKETS) + 1)
        assert status["counters"]["malformed"] == len(NOT_TICKETS)
        assert status["counters"]["pull_faults"] >= 10
        assert status["counters"]["worker_crashes"] == 0
        assert bad.delivered == {"one-good": 1}
        await still_works(live, bad)


async def test_absurd_dates_are_replaced_and_named() -> None:
    dates: list[Any] = [
        None,
        "",
        "x",
        [],
        {},
        True,
        -1,
        0,
        1e30,
        "9" * 99,
        "2999-01-01 00:00:00",
        32503680000,
        4e12,
    ]
    old = ["2001-01-01 00:00:00", 1_000_000_000, 1_000_000_000_000]
    async with bad_world() as bad, running(quick(bad.url)) as live:
        bad.hand_out(listed(*(entry("new", n, created_at=date) for n, date in enumerate(dates))))
        bad.hand_out(listed(*(entry("old", n, created_at=date) for n, date in enumerate(old))))
        bad.hand_out(listed(entry("absent")))
        counters = (await all_done(live, bad, len(dates) + 1 + len(old)))["counters"]
        assert counters["undated"] == 11
        assert counters["future_dated"] == 3
        assert counters["pull_expired"] == len(old)
        assert counters["delivered"] == len(dates) + 1
        await still_works(live, bad)


async def test_100_000_tickets_in_one_pull_are_all_accounted_for_within_bounded_memory() -> None:
    tickets = listed(*({"shop_id": "many", "good_id": n, "country": "t"} for n in range(100_000)))
    async with bad_world() as bad, running(quick(bad.url)) as live:
        bad.hand_out(listed(entry("warm-up")))
        await eventually(lambda: bad.delivered["warm-up"] == 1)
        before = rss_bytes()
        bad.hand_out(tickets)
        await eventually(lambda: live.counter("pulled") == 100_001)
        grown = rss_bytes() - before
        lane = live.status()
        assert lane["queue"]["pending"] + lane["queue"]["delayed"] <= 800 + 200
        await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
        counters = (await live.lane())["counters"]
        assert counters["overflow"] + counters["delivered"] == 100_001
        assert counters["overflow"] >= 99_000
        assert_balanced(await live.lane())
        overflow = await live.events("overflow")
        assert overflow[0]["detail"]["got"] == 100_000
        assert live.status()["drop_rate"]["dropped"] == 0
        assert grown < 300 * MB
        await still_works(live, bad)


async def test_dates_beyond_all_numbers_leave_the_control_endpoint_readable() -> None:
    """Thirty tickets agree on a date that no clock will ever show: that is a skew to be told."""
    async with bad_world() as bad, running(quick(bad.url)) as live:
        bad.hand_out(listed(*(entry("far", n, created_at="9" * 60) for n in range(30))))
        await all_done(live, bad, 30)
        async with asyncio.timeout(PATIENCE):
            # The event comes with a tick of the control, not with the pull.
            while not any(event.kind == "clock_skew" for event in live.daemon.bus.recent(1000)):
                if live.counter("undated") == 30:
                    break
                await asyncio.sleep(0.01)
        assert isinstance(await live.events(), list)
        await still_works(live, bad)


BAD_ANSWERS: dict[str, Any] = {
    "empty": said(b""),
    "html": said(b"<html>502</html>"),
    "cut-json": said(GOOD_PAGE[:-3]),
    "bytes": said(b"\xff\xfe"),
    "500": said(b"", 500),
    "429": said(b"", 429, headers={"Retry-After": "0"}),
    "429-absurd": said(b"", 429, headers={"Retry-After": "yesterday"}),
    "redirect": said(b"", 302, {"Location": "http://127.0.0.1:1/"}),
    "cut-off": cut_off(),
    "cut-off-page": cut_off(GOOD_PAGE, 100_000),
    "bomb": said(BOMB, headers={"Content-Encoding": "gzip"}),
    "no-gzip": said(b"plain", headers={"Content-Encoding": "gzip"}),
    "strange-encoding": said(GOOD_PAGE, headers={"Content-Encoding": "zstd"}),
    "20mb": said(b" " * (20 * MB)),
    "20mb-chunked": dripping(20 * MB),
}
BAD_RESULTS: dict[str, Any] = {
    "list": said(b"[]"),
    "number": said(b"5"),
    "null": said(b"null"),
    "no-item": said(b'{"_success":true,"response":{"data":{"item":null}}}'),
    "wrong-types": said(b'{"_success":[],"response":5,"error":"x"}'),
    "gone": said(b'{"_success":false,"error":{"code":1100004}}', 404),
}


async def test_bad_answers_are_asked_again_and_odd_ones_are_results() -> None:
    gc.collect()
    before = rss_bytes()
    async with bad_world() as bad, running(quick(bad.url)) as live:
        bad.bad_answers = {**BAD_ANSWERS, **BAD_RESULTS}
        shops = list(bad.bad_answers)
        bad.hand_out(listed(*map(entry, shops)))
        counters = (await all_done(live, bad, len(shops)))["counters"]
        assert counters["delivered"] == len(shops)
        assert counters["query_faults"] == len(BAD_ANSWERS)
        assert counters["offline"] == len(BAD_RESULTS)
        assert counters["answered"] == len(BAD_ANSWERS)
        assert counters["worker_crashes"] == 0
        assert counters["maybe_paid"] >= 2
        assert bad.delivered == Counter(shops)
        assert rss_bytes() - before < 300 * MB
        await still_works(live, bad)


BAD_RECEIPTS: dict[str, Any] = {
    "500": said(b"", 500),
    "429": said(b"", 429, headers={"Retry-After": "0"}),
    "cut-off": cut_off(),
    "bomb": said(BOMB, headers={"Content-Encoding": "gzip"}),
    "20mb": said(b" " * (20 * MB)),
    "20mb-chunked": dripping(20 * MB),
}
REFUSALS: dict[str, Any] = {
    "400": said(b"", 400),
    "401": said(b"", 401),
    "404": said(b'{"code":404}', 404),
    "code": said(b'{"code":500}'),
}


async def test_bad_receipts_are_tried_again_and_refusals_are_final() -> None:
    async with bad_world() as bad, running(quick(bad.url)) as live:
        bad.bad_receipts = {**BAD_RECEIPTS, **REFUSALS}
        shops = list(bad.bad_receipts)
        bad.hand_out(listed(*map(entry, shops)))
        counters = (await all_done(live, bad, len(shops)))["counters"]
        assert counters["delivered"] == len(BAD_RECEIPTS)
        assert counters["callback_faults"] == len(BAD_RECEIPTS)
        assert counters["rejected"] == len(REFUSALS)
        assert counters["answered"] == len(shops)
        assert counters["worker_crashes"] == 0
        assert bad.delivered == Counter(list(BAD_RECEIPTS))
        await still_works(live, bad)


@pytest.mark.parametrize("token", ["a\x00b", "a\nb", "a\r\nb: c"])
async def test_a_ticket_whose_token_no_header_can_hold_is_not_paid_for(token: str) -> None:
    async with bad_world() as bad, running(quick(bad.url)) as live:
        bad.hand_out(listed(entry("odd", token=token)))
        await eventually(lambda: live.counter("pulled") == 1)
        await eventually(lambda: live.counter("queried") or not live.daemon.lanes[LANE].in_flight())
        assert live.counter("worker_crashes") == 0
        assert live.counter("queried") == 0
