"""The Sink over HTTP, on a real socket."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from pipeline.callback.http import HttpSink
from pipeline.clock import SystemClock
from pipeline.config import CallbackConfig, QueryConfig
from pipeline.query.http import HttpProvider
from pipeline.ticket import Answer, Receipt, Ticket, Verdict
from tests.e2e.fake_end import Play, endless, fake_end, opened, raw, reply, self_signed, unused_url

ACCEPTED = reply(200, {"code": 200, "data": {"code": "SUCCESS"}})
RESULT = b'{ "data" : {"item":{"title":"\xe6\xad\xa3 \\"q\\" \\\\ \\u4e2d\\n","n":1.50e2}} }\n'
URL = (
    "https://shopee.tw/api/v4/pdp/get_pc?display_model_id=0&item_id=456&model_selection_logic=3"
    "&shop_id=123&tz_offset_in_minutes=480&detail_level=0"
)


def ticket(token: str = "ticket-token", **payload: Any) -> Ticket:
    known = {"shop_id": 123, "item_id": 456, "country": "tw", **payload}
    return Ticket(key="123:456:tw", trace_id="t", stamp=None, payload=known, token=token)


@asynccontextmanager
async def sink_at(url: str, **config: Any) -> AsyncIterator[HttpSink]:
    async with opened(HttpSink(CallbackConfig(url=url, **config), SystemClock(), 4)) as sink:
        yield sink


def answer(body: bytes = RESULT) -> Answer:
    return Answer(Verdict.ANSWERED, body)


async def receipt_of(play: Play, timeout: float = 10.0, **config: Any) -> Receipt:
    async with fake_end(play) as end, sink_at(end.url, **config) as sink:
        return await sink.deliver(ticket(), answer(), timeout)


# -- the request ---------------------------------------------------------------------------------------


async def test_a_callback_is_sent_exactly_as_the_contract_says() -> None:
    async with fake_end(ACCEPTED) as end, sink_at(end.url) as sink:
        receipt = await sink.deliver(ticket(), answer(), 5)
    assert receipt == Receipt(Verdict.ANSWERED)
    request = end.request
    assert (request.method, request.target) == ("POST", "/api/task/submit/v2")
    assert request.header("authorization") == "Bearer ticket-token"
    assert request.header("content-type") == "application/json"
    assert request.header("host") == end.url.removeprefix("http://")
    assert request.json() == {"appVersion": "vv2", "url": URL, "result": RESULT.decode()}
    assert not {"cookie", "referer"} & set(request.headers)


@pytest.mark.parametrize(
    "result",
    [
        RESULT,
        b"{}",
        b'{"deep":' + b"[" * 500 + b"]" * 500 + b"}",
        '{"t":"正品現貨 😀 \\ud83d\\ude00 \u2028\u2029 \x7f"}'.encode(),
        b'{\r\n\t"pretty" : [\r\n\t\t1,\r\n\t\t2\r\n\t]\r\n}',
        b'{"big":123456789012345678901234567890,"f":1e400,"z":-0.0}',
        orjson.dumps({"text": "x" * 100_000}),
    ],
)
async def test_the_result_is_the_answers_exact_text_as_a_json_string(result: bytes) -> None:
    async with fake_end(ACCEPTED) as end, sink_at(end.url) as sink:
        await sink.deliver(ticket(), answer(result), 5)
    assert end.request.json()["result"].encode() == result


@pytest.mark.parametrize(
    ("status", "body", "result"),
    [
        (200, b'{"x":1,"_success":true,"response":' + RESULT + b"}", RESULT.strip()),
        (200, b'{"_success":true,"response":{"data":{"item":null}}}', b'{"data":{"item":null}}'),
        (200, b'{ "_success": true }', b'{ "_success": true }'),
        (404, b'{"error": {"code":1100004}}', b'{"error": {"code":1100004}}'),
    ],
)
async def test_from_socket_to_socket_the_response_or_the_whole_answer_keeps_its_bytes(
    status: int, body: bytes, result: bytes
) -> None:
    async with fake_end(reply(status, body)) as far, fake_end(ACCEPTED) as near:
        provider = HttpProvider(QueryConfig(url=far.url, token=SecretStr("q")), SystemClock(), 4)
        async with opened(provider), sink_at(near.url) as sink:
            found = await provider.query(ticket(), 5)
            assert found.verdict.is_result
            await sink.deliver(ticket(), found, 5)
    assert near.request.json()["result"].encode().strip() == result


async def test_each_callback_carries_its_own_tickets_token_and_page() -> None:
    async with fake_end(*[ACCEPTED] * 3) as end, sink_at(end.url) as sink:
        for number in range(3):
            await sink.deliver(ticket(f"token-{number}", item_id=number, country="my"), answer(), 5)
    assert [request.header("authorization") for request in end.requests] == [
        "Bearer token-0",
        "Bearer token-1",
        "Bearer token-2",
    ]
    assert [f"&item_id={number}&" in end.requests[number].json()["url"] for number in range(3)] == [True] * 3
    assert end.requests[0].json()["url"].startswith("https://shopee.my/api/v4/pdp/get_pc?")


async def test_a_ticket_never_chooses_the_host_and_never_breaks_out_of_its_string() -> None:
    strange = ticket(country='tw"},"x":{"', shop_id="{item_id}", item_id="$result")
    async with fake_end(ACCEPTED) as end, sink_at(end.url) as sink:
        assert (await sink.deliver(strange, answer(), 5)).verdict is Verdict.ANSWERED
    body = end.request.json()
    assert list(body) == ["appVersion", "url", "result"]
    assert body["result"].encode() == RESULT
    assert "shop_id={item_id}&" in body["url"]


async def test_path_page_address_and_body_are_configuration() -> None:
    config = {"path": "/done", "page_url": "app://{shop_id}/{nothing}", "body": {
        "v": 2, "where": "$page_url", "shop": "$shop_id", "what": "$result"}}  # fmt: skip
    async with fake_end(ACCEPTED) as end, sink_at(end.url, **config) as sink:
        await sink.deliver(ticket(), answer(b"{}"), 5)
    assert end.request.path == "/done"
    assert end.request.json() == {"v": 2, "where": "app://123/", "shop": 123, "what": "{}"}


# -- delivered, rejected, fault ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "play",
    [
        ACCEPTED,
        reply(200, {"code": 0}),
        reply(200, {"code": "200"}),
        reply(200, {"data": {"code": "FAILED"}}),
        reply(200, {"code": None}),
        reply(200, {}),
        reply(200, []),
        reply(200, b""),
        reply(200, b"OK"),
        reply(200, b"\xff"),
        reply(201, {"code": 200}),
        reply(202, b""),
        raw(b"HTTP/1.1 204 No Content\r\n\r\n", then=""),
    ],
)
async def test_2xx_with_no_code_or_a_good_one_is_delivered(play: Play) -> None:
    assert await receipt_of(play) == Receipt(Verdict.ANSWERED)


@pytest.mark.parametrize("code", [1, -1, 500, 404, "500", "FAILED", "", 10**18, "9" * 40])
async def test_2xx_with_a_code_that_is_not_a_success_is_rejected(code: object) -> None:
    assert (await receipt_of(reply(200, {"code": code}))).verdict is Verdict.REJECTED


@pytest.mark.parametrize("code", [500.0, 1.5, [], {}, {"code": 500}])
async def test_2xx_with_an_absurd_code_is_not_delivered(code: object) -> None:
    assert (await receipt_of(reply(200, {"code": code}))).verdict is not Verdict.ANSWERED


async def test_success_codes_are_configuration() -> None:
    for code, verdict in ((7, Verdict.ANSWERED), (200, Verdict.REJECTED), (0, Verdict.REJECTED)):
        found = await receipt_of(reply(200, {"code": code}), success_codes=[7])
        assert found.verdict is verdict


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 410, 413, 422, 451])
async def test_any_other_4xx_is_rejected_for_good(status: int) -> None:
    found = await receipt_of(reply(status, {"code": 200}))
    assert found.verdict is Verdict.REJECTED
    assert str(status) in found.detail


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_overload_and_failure_are_a_fault(status: int) -> None:
    found = await receipt_of(reply(status, {"code": 200}))
    assert (found.verdict, found.retry_after) == (Verdict.FAULT, None)
    assert str(status) in found.detail


async def test_a_redirect_is_never_delivered_and_nobody_follows_it() -> None:
    found = await receipt_of(reply(307, b"", {"Location": "/elsewhere"}))
    assert found.verdict is not Verdict.ANSWERED


@pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("-5", 0.0), ("1e9", 60.0), ("soon", None)])
async def test_retry_after_is_honoured_and_clamped(name: str, value: str, seconds: float | None) -> None:
    found = await receipt_of(reply(429, b"", {name: value}))
    assert (found.verdict, found.retry_after) == (Verdict.FAULT, seconds)


async def test_retry_after_may_be_a_date() -> None:
    found = await receipt_of(reply(503, b"", {"Retry-After": formatdate(time.time() + 40, usegmt=True)}))
    assert found.retry_after is not None
    assert 5 < found.retry_after <= 41


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "play",
    [
        raw(b"", then="close"),
        raw(b"", then="reset"),
        raw(b"junk\r\n\r\n"),
        raw(HEAD + b'Content-Length: 99\r\n\r\n{"code":200', then="close"),
        raw(HEAD + b'Content-Length: 99\r\n\r\n{"code":200', then="reset"),
        endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 0x10000 + b"\r\n"),
    ],
)
async def test_an_answer_that_breaks_off_or_does_not_end_is_a_fault_sent_once(play: Play) -> None:
    assert (await receipt_of(play)).verdict is Verdict.FAULT


async def test_a_receiver_that_does_not_answer_is_a_fault_at_the_time_out() -> None:
    assert (await receipt_of(raw(b"", then="hang"), timeout=0.2)).verdict is Verdict.FAULT


@pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning")
async def test_a_receiver_that_does_not_read_is_a_fault_at_the_time_out() -> None:
    async def deaf(_reader: Any, _writer: Any) -> bool:
        raise AssertionError("the body must not have arrived whole")

    async with fake_end(rest=deaf) as end, sink_at(end.url) as sink:
        # More than all socket buffers on the way take, and the fake waits for the whole of it.
        found = await sink.deliver(ticket(), answer(b"{" + b" " * (64 << 20) + b"}"), 0.05)
    assert found.verdict is Verdict.FAULT


async def test_nobody_listening_is_a_fault() -> None:
    async with sink_at(unused_url()) as sink:
        assert (await sink.deliver(ticket(), answer(), 5)).verdict is Verdict.FAULT


async def test_a_certificate_nobody_vouches_for_is_a_fault_that_says_tls() -> None:
    async with fake_end(tls=self_signed()) as end, sink_at(end.url) as sink:
        found = await sink.deliver(ticket(), answer(), 5)
    assert found.verdict is Verdict.FAULT
    assert found.detail.startswith("TLS")
    assert found.trouble == "tls"
    assert end.requests == []


async def test_no_receipt_names_the_token() -> None:
    plays = [reply(500), reply(404), reply(200, {"code": 5}), raw(b"", then="reset"), raw(b"x\r\n\r\n")]
    details = [(await receipt_of(play)).detail for play in plays]
    async with sink_at(unused_url()) as sink:
        details.append((await sink.deliver(ticket(), answer(), 5)).detail)
    assert all(details)
    assert not any("ticket-token" in detail for detail in details)


@pytest.mark.parametrize("token", ["", " ", "a b", "ü-漢字", "x" * 4096, "\t", "\x00", "\x7f", "a\x0bb"])
async def test_no_token_that_upstream_can_write_is_an_exception(token: str) -> None:
    """An exception is a bug in the port (see ports.py), and upstream chooses the token."""
    async with fake_end(rest=ACCEPTED) as end, sink_at(end.url) as sink:
        found = await sink.deliver(ticket(token), answer(), 5)
    assert isinstance(found, Receipt)
