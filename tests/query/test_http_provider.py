"""The Provider over HTTP, on a real socket."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import Any

import orjson
import pytest

from pipeline.clock import SystemClock
from pipeline.config import QueryConfig
from pipeline.query.http import HttpProvider
from pipeline.ticket import Answer, Ticket, Verdict
from tests.e2e.fake_end import Play, endless, fake_end, opened, raw, reply, self_signed, unused_url

TOKEN = "query-token-canary"
RESPONSE = b'{ "data" : {"item":{"title":"\xe6\xad\xa3\xe5\x93\x81 \\"\\u4e2d\\" \\\\ \\n","price":1.50e2}} }'
PAGE = b'{"_success":true,"response":' + RESPONSE + b',"more":[1,2]}'


def ticket(**payload: Any) -> Ticket:
    known = {"shop_id": 123, "item_id": 456, "country": "tw", **payload}
    return Ticket(key="123:456:tw", trace_id="t", stamp=None, payload=known, token="ticket-token")


@asynccontextmanager
async def provider_at(url: str, **config: Any) -> AsyncIterator[HttpProvider]:
    settings = QueryConfig(url=url, **{"token": TOKEN, **config})
    async with opened(HttpProvider(settings, SystemClock(), 4)) as provider:
        yield provider


async def answered(play: Play, timeout: float = 10.0, **config: Any) -> Answer:
    async with fake_end(play) as end, provider_at(end.url, **config) as provider:
        return await provider.query(ticket(), timeout)


def error(code: object, message: str = "no") -> dict[str, Any]:
    return {"_success": False, "error": {"code": code, "message": message}}


# -- the request ---------------------------------------------------------------------------------------


async def test_a_query_is_sent_exactly_as_the_contract_says() -> None:
    async with fake_end(reply(200, PAGE)) as end, provider_at(end.url) as provider:
        await provider.query(ticket(), 5)
    request = end.request
    assert (request.method, request.target) == ("POST", "/request/shopee/pdp")
    assert request.header("authorization") == f"Bearer {TOKEN}"
    assert request.header("content-type") == "application/json"
    assert request.header("host") == end.url.removeprefix("http://")
    assert request.json() == {"country": "tw", "shop_id": 123, "item_id": 456, "language": "zh-Hant"}
    assert not {"cookie", "referer"} & set(request.headers)


async def test_identities_keep_the_type_that_upstream_gave_them() -> None:
    async with fake_end(reply(200, PAGE)) as end, provider_at(end.url) as provider:
        await provider.query(ticket(shop_id="00123", item_id=2**63 - 1, country="臺"), 5)
    asked = end.request.json()
    assert (asked["shop_id"], asked["item_id"], asked["country"]) == ("00123", 2**63 - 1, "臺")


async def test_path_language_and_body_are_configuration() -> None:
    body = {"q": "$item_id", "lang": "$language", "fixed": 5, "none": "$nothing"}
    config = {"path": "/v2", "language": "en", "body": body}
    async with fake_end(reply(200, PAGE)) as end, provider_at(end.url, **config) as provider:
        await provider.query(ticket(), 5)
    assert end.request.path == "/v2"
    assert end.request.json() == {"q": 456, "lang": "en", "fixed": 5, "none": ""}


async def test_one_connection_serves_one_query_after_another() -> None:
    async with fake_end(*[reply(200, PAGE)] * 3) as end, provider_at(end.url) as provider:
        for _ in range(3):
            assert (await provider.query(ticket(), 5)).verdict is Verdict.ANSWERED
    assert len(end.requests) == 3


async def test_cookies_are_not_kept() -> None:
    first = reply(200, PAGE, {"Set-Cookie": "session=1; Path=/"})
    async with fake_end(first, reply(200, PAGE)) as end, provider_at(end.url) as provider:
        await provider.query(ticket(), 5)
        await provider.query(ticket(), 5)
    assert not any("cookie" in request.headers for request in end.requests)


# -- the table, row by row -----------------------------------------------------------------------------


async def test_an_answer_with_an_item_is_answered_with_the_response_objects_own_bytes() -> None:
    answer = await answered(reply(200, PAGE))
    assert answer == Answer(Verdict.ANSWERED, answer.body)
    assert answer.body == RESPONSE


@pytest.mark.parametrize(
    ("status", "body", "result"),
    [
        (200, b'{"_success":true,"response":{"data":{"item":null}}}', b'{"data":{"item":null}}'),
        (200, b'{"_success":true,"response":{"data":{}}}', b'{"data":{}}'),
        (200, b'{"_success":true,"response":{"data":null}}', b'{"data":null}'),
        (200, b'{"_success":true,"response":{}}', b"{}"),
        (200, b'{"_success":false,"response":{"data":{"item":{"a":1}}}}', b'{"data":{"item":{"a":1}}}'),
        (200, b'{"_success":true}', None),
        (200, b'{"_success":true,"response":null}', None),
        (200, b'{"_success":false}', None),
        (200, b'{"_success":false,"error":{"code":1100004,"message":"gone"}}', None),
        (200, b"{}", None),
        (200, b"[]", None),
        (200, b"null", None),
        (200, b'{"_success":"yes","response":"text"}', None),
        (404, b'{"_success":false,"error":{"code":1100004,"message":"gone"}}', None),
        (400, b'{"_success":false,"error":{"code":"1100004"}}', None),
        (422, b'{"_success":false,"error":{"code":7}}', None),
    ],
)  # fmt: skip
async def test_any_other_result_is_offline_and_carries_the_response_or_the_whole_answer(
    status: int, body: bytes, result: bytes | None
) -> None:
    answer = await answered(reply(status, body))
    assert answer.verdict is Verdict.OFFLINE
    assert answer.body == (body if result is None else result)


@pytest.mark.parametrize("status", [200, 400, 404, 429, 500])
@pytest.mark.parametrize("code", [1100002, "1100002"])
async def test_the_processing_code_is_processing_whatever_the_status(status: int, code: object) -> None:
    assert (await answered(reply(status, error(code)))).verdict is Verdict.PROCESSING


async def test_the_error_code_of_the_provider_itself_is_provider_error() -> None:
    answer = await answered(reply(400, error(1000000)))
    assert answer.verdict is Verdict.PROVIDER_ERROR
    assert answer.verdict.is_fault


@pytest.mark.parametrize(
    "play",
    [
        reply(400, error(1070102)),
        reply(200, error(1070102)),
        reply(429, error(1070102), {"Retry-After": "5"}),
        reply(500, error("1070102")),
        reply(402, b""),
        reply(402, error(5)),
        reply(402, b"<html>"),
    ],
)
async def test_the_credit_code_or_402_is_credit_even_inside_a_fault(play: Play) -> None:
    answer = await answered(play)
    assert (answer.verdict, answer.body) == (Verdict.CREDIT, b"")


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"_success":false,"error":{"code":401}}', PAGE])
async def test_refused_credentials_are_auth_and_never_a_result(status: int, body: bytes) -> None:
    answer = await answered(reply(status, body))
    assert (answer.verdict, answer.body) == (Verdict.AUTH, b"")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 520])
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"_success":false,"error":{"code":5}}', PAGE])
async def test_overload_and_failure_are_a_fault(status: int, body: bytes) -> None:
    answer = await answered(reply(status, body))
    assert (answer.verdict, answer.body, answer.throttled) == (Verdict.FAULT, b"", status in (429, 503))


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize("body", [b"", b"<html>", PAGE[:-1], PAGE[:40], b"{]", b"\xff\xfe", b"Bad", b'"cut'])
async def test_what_is_not_json_is_a_fault(status: int, body: bytes) -> None:
    answer = await answered(reply(status, body))
    assert (answer.verdict, answer.body) == (Verdict.FAULT, b"")


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize("body", [b"502 Bad Gateway", b"[1,", b"null and void", b"[" * 100_000])
async def test_what_only_begins_like_json_is_a_fault_too(status: int, body: bytes) -> None:
    assert (await answered(reply(status, body))).verdict is Verdict.FAULT


@pytest.mark.parametrize("where", [b'{"_success":true,"response":%b}', b'{"error":%b}', b'{"x":%b}'])
async def test_deeply_nested_json_is_no_exception(where: bytes) -> None:
    answer = await answered(reply(200, where % (b"[" * 5000 + b"]" * 5000)))
    assert isinstance(answer, Answer)


async def test_codes_are_configuration() -> None:
    codes: dict[str, Any] = {"processing_codes": [1], "fault_codes": [2], "credit_codes": [3]}
    found = [(await answered(reply(400, error(code)), **codes)).verdict for code in (1, 2, 3, 1100002)]
    assert found == [Verdict.PROCESSING, Verdict.PROVIDER_ERROR, Verdict.CREDIT, Verdict.OFFLINE]


@pytest.mark.parametrize("code", [None, True, 1.5, [], {}, "x", "1" * 50, 10**30])
async def test_an_absurd_error_code_is_another_code(code: Any) -> None:
    written = b"1" + b"0" * 30 if code == 10**30 else orjson.dumps(code)
    body = b'{"_success":false,"error":{"code":%b}}' % written
    assert (await answered(reply(400, body))).verdict is Verdict.OFFLINE


@pytest.mark.parametrize("wrong", [None, [], "x", 5, True])
async def test_an_error_that_is_no_object_does_not_confuse_the_reader(wrong: Any) -> None:
    assert (await answered(reply(400, {"_success": False, "error": wrong}))).verdict is Verdict.OFFLINE


# -- Retry-After ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("-5", 0.0), ("1e9", 60.0), ("soon", None)])
async def test_retry_after_is_honoured_and_clamped(name: str, value: str, seconds: float | None) -> None:
    assert (await answered(reply(429, b"", {name: value}))).retry_after == seconds
    assert (await answered(reply(400, error(1000000), {name: value}))).retry_after == seconds


async def test_retry_after_may_be_a_date() -> None:
    wait = formatdate(time.time() + 40, usegmt=True)
    answer = await answered(reply(503, b"", {"Retry-After": wait}))
    assert answer.retry_after is not None
    assert 5 < answer.retry_after <= 41


# -- broken connections --------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    "begun",
    [
        HEAD + b"Content-Length: 100000\r\n\r\n" + PAGE,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n%b\r\n" % (len(PAGE), PAGE),
        HEAD + b"Content-Length: 100000\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(PAGE)[:20],
    ],
    ids=["length", "chunked", "gzip"],
)
async def test_an_answer_that_breaks_off_is_a_fault_that_may_have_been_paid(begun: bytes, how: str) -> None:
    answer = await answered(raw(begun, then=how))
    assert (answer.verdict, answer.body, answer.maybe_paid) == (Verdict.FAULT, b"", True)


async def test_an_answer_that_never_comes_or_never_ends_may_have_been_paid() -> None:
    for begun in (b"", HEAD, HEAD + b"Content-Length: 1000\r\n\r\n{"):
        answer = await answered(raw(begun, then="hang"), timeout=0.2)
        assert (answer.verdict, answer.maybe_paid) == (Verdict.FAULT, True)


async def test_truncated_json_in_a_whole_answer_may_have_been_paid() -> None:
    answer = await answered(reply(200, PAGE[:60]))
    assert (answer.verdict, answer.maybe_paid) == (Verdict.FAULT, True)


async def test_nobody_listening_is_a_fault_that_cost_nothing() -> None:
    async with provider_at(unused_url()) as provider:
        answer = await provider.query(ticket(), 5)
    assert (answer.verdict, answer.maybe_paid) == (Verdict.FAULT, False)


async def test_a_name_that_nobody_knows_is_a_fault_that_cost_nothing() -> None:
    async with provider_at("http://nobody.invalid") as provider:
        answer = await provider.query(ticket(), 15)
    assert (answer.verdict, answer.maybe_paid) == (Verdict.FAULT, False)


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_hang_up_without_an_answer_is_a_fault_and_nothing_is_sent_twice(how: str) -> None:
    """A query is paid for: only the stage may send it again."""
    async with fake_end(raw(b"", then=how)) as end, provider_at(end.url) as provider:
        assert (await provider.query(ticket(), 5)).verdict is Verdict.FAULT


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_kept_connection_that_dies_under_a_query_is_a_fault_and_the_next_one_is_new(how: str) -> None:
    plays = reply(200, PAGE), raw(b"", then=how), reply(200, PAGE)
    async with fake_end(*plays) as end, provider_at(end.url) as provider:
        verdicts = [(await provider.query(ticket(), 5)).verdict for _ in range(3)]
    assert verdicts[0] is verdicts[2] is Verdict.ANSWERED
    assert verdicts[1] is Verdict.FAULT


async def test_a_redirect_is_a_fault_and_nobody_follows_it() -> None:
    for status in (301, 302, 307, 308):
        answer = await answered(reply(status, b"{}", {"Location": "/elsewhere"}))
        assert answer.verdict is Verdict.FAULT


async def test_a_certificate_nobody_vouches_for_is_a_fault_that_says_tls() -> None:
    async with fake_end(tls=self_signed()) as end, provider_at(end.url) as provider:
        answer = await provider.query(ticket(), 5)
    assert (answer.verdict, answer.maybe_paid) == (Verdict.FAULT, False)
    assert answer.detail.startswith("TLS")
    assert answer.trouble == "tls"
    assert end.requests == []


@pytest.mark.parametrize("begun", [b"junk\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1\r\n\r\n"])
async def test_what_is_not_http_is_a_fault(begun: bytes) -> None:
    assert (await answered(raw(begun))).verdict is Verdict.FAULT


async def test_no_fault_names_a_secret() -> None:
    plays = [reply(500), reply(401), reply(402), reply(200, b"<"), raw(b"", then="reset"), raw(b"x\r\n\r\n")]
    details = [(await answered(play)).detail for play in plays]
    async with provider_at(unused_url()) as provider:
        details.append((await provider.query(ticket(), 5)).detail)
    assert all(details)
    assert not any(secret in detail for detail in details for secret in (TOKEN, "ticket-token"))


# -- size ----------------------------------------------------------------------------------------------


async def test_a_body_at_the_limit_is_read_and_one_byte_more_is_a_fault() -> None:
    limit = 1 << 16
    page = PAGE[:-1] + b" " * (limit - len(PAGE)) + b"}"
    assert len(page) == limit
    assert (await answered(reply(200, page), max_body=limit)).verdict is Verdict.ANSWERED
    too_large = await answered(reply(200, page + b" "), max_body=limit)
    assert (too_large.verdict, too_large.trouble) == (Verdict.FAULT, "too_large")


async def test_20_mb_are_cut_off_declared_or_not() -> None:
    declared = raw(HEAD + b"Content-Length: 20971520\r\n\r\n{", then="hang")
    assert (await answered(declared)).verdict is Verdict.FAULT
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    chunked = endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", chunk)
    assert (await answered(chunked)).verdict is Verdict.FAULT


async def test_a_gzip_bomb_is_cut_off_before_it_is_inflated() -> None:
    bomb = gzip.compress(b'{"_success":true,"response":"' + b" " * (64 << 20) + b'"}', 9)
    tracemalloc.start()
    try:
        answer = await answered(reply(200, bomb, {"Content-Encoding": "gzip"}), max_body=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert answer.verdict is Verdict.FAULT
    assert peak < 32 << 20


async def test_gzip_that_fits_gives_the_same_bytes() -> None:
    answer = await answered(reply(200, gzip.compress(PAGE), {"Content-Encoding": "gzip"}))
    assert (answer.verdict, answer.body) == (Verdict.ANSWERED, RESPONSE)


# -- credits -------------------------------------------------------------------------------------------


async def credits_of(play: Play) -> float | None:
    async with fake_end(play) as end, provider_at(end.url) as provider:
        return await provider.credits()


async def test_credits_are_asked_with_the_token_and_summed() -> None:
    answer = {"_success": True, "credits": [{"credit": 99611}, {"credit": 0.5}]}
    async with fake_end(reply(200, answer)) as end, provider_at(end.url) as provider:
        assert await provider.credits() == 99611.5
    request = end.request
    assert (request.method, request.target) == ("GET", "/tokens/credits")
    assert request.header("authorization") == f"Bearer {TOKEN}"


async def test_no_credit_left_is_zero_and_not_unknown() -> None:
    assert await credits_of(reply(200, {"_success": True, "credits": [{"credit": 0}]})) == 0.0


@pytest.mark.parametrize(
    "play",
    [
        reply(200, b""),
        reply(200, b"<html>"),
        reply(200, b"null"),
        reply(200, []),
        reply(200, {"_success": True}),
        reply(200, {"_success": True, "credits": None}),
        reply(200, {"_success": True, "credits": 5}),
        reply(200, {"_success": True, "credits": "many"}),
        reply(200, {"_success": True, "credits": [5]}),
        reply(200, {"_success": True, "credits": [{}]}),
        reply(200, {"_success": True, "credits": [{"credit": "many"}]}),
        reply(200, {"_success": True, "credits": [{"credit": None}]}),
        reply(401, {"_success": False, "error": {"code": 401}}),
        reply(500, b"<html>"),
        reply(200, b" " * (17 << 20)),
    ],
)
async def test_credits_that_are_not_said_are_none(play: Play) -> None:
    assert await credits_of(play) is None


async def test_credits_of_a_provider_that_hangs_up_are_none() -> None:
    async with fake_end(rest=raw(b"", then="reset")) as end, provider_at(end.url) as provider:
        assert await provider.credits() is None
    async with provider_at(unused_url()) as provider:
        assert await provider.credits() is None


@pytest.mark.parametrize(
    "play",
    [
        reply(200, {"_success": False, "credits": [{"credit": 0}]}),
        reply(500, {"_success": True, "credits": [{"credit": 0}]}),
        reply(200, {"_success": True, "credits": []}),
        reply(200, {"_success": True, "credits": {}}),
        reply(200, {"_success": True, "credits": [{"credit": True}]}),
    ],
)
async def test_a_refusal_is_not_taken_for_an_empty_account(play: Play) -> None:
    assert await credits_of(play) is None
