"""The Source over HTTP, on a real socket."""

from __future__ import annotations

import gzip
import resource
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from pydantic import SecretStr

from pipeline.clock import SystemClock
from pipeline.config import PullConfig
from pipeline.ports import Pulled
from pipeline.pull.http import HttpSource
from pipeline.ticket import Verdict
from tests.e2e.fake_end import Play, endless, fake_end, opened, raw, reply, self_signed, unused_url

NOON = 1_704_081_600.0  # 2024-01-01 12:00:00 in Shanghai
DATA = {
    "id": 7,
    "shop_id": 123,
    "good_id": 456,
    "country": "tw",
    "trace_id": "trace-1",
    "type": "shopee",
    "created_at": "2024-01-01 12:00:00",
    "token": "token-1",
}
LONG_STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def source_at(url: str, **config: Any) -> AsyncIterator[HttpSource]:
    async with opened(
        HttpSource(PullConfig(url=url, phone=SecretStr("1"), **config), SystemClock(), 4)
    ) as source:
        yield source


async def pulled(answer: Play, timeout: float = 10.0, **config: Any) -> Pulled:
    async with fake_end(answer) as end, source_at(end.url, **config) as source:
        return await source.pull(50, timeout)


async def pulled_entries(*entries: Any, **config: Any) -> Pulled:
    return await pulled(reply(200, {"success": True, "tasks": list(entries)}), **config)


def entry(**changes: Any) -> dict[str, Any]:
    return {"type": "shopee", "data": {**DATA, **changes}}


@pytest.mark.parametrize("broken", [rb"\ud83d cut", b"\xff\xfe"], ids=["half", "bytes"])
async def test_a_character_that_is_none_costs_no_ticket(broken: bytes) -> None:
    """JavaScript's substring makes halves of emoji, and a page in another encoding no UTF-8."""
    whole, cut = orjson.dumps(entry(trace_id="t2")), orjson.dumps(entry(title="HERE"))
    body = b'{"success":true,"tasks":[%s,%s]}' % (whole, cut.replace(b"HERE", broken))
    found = await pulled(reply(200, body))
    assert found.verdict is Verdict.ANSWERED
    assert [ticket.trace_id for ticket in found.tickets] == ["t2", "trace-1"]


async def test_a_priority_may_be_a_number_in_quotes() -> None:
    found = await pulled_entries(*(entry(priority=value) for value in (7, "9", "-2", "high", "9" * 40, None)))
    assert [ticket.priority for ticket in found.tickets] == [7, 9, -2, 0, 0, 0]


# -- the request ---------------------------------------------------------------------------------------


async def test_a_pull_is_a_get_of_the_path_with_phone_and_limit_and_nothing_else() -> None:
    async with fake_end(reply(200, {"success": False})) as end:
        config = PullConfig(url=end.url, phone=SecretStr("+86 138&limit=9"))
        async with opened(HttpSource(config, SystemClock(), 4)) as source:
            await source.pull(37, 5)
    request = end.request
    assert (request.method, request.path) == ("GET", "/api/get/tasks")
    assert sorted(request.query) == [("limit", "37"), ("phone", "+86 138&limit=9")]
    assert request.body == b""
    assert request.header("host") == end.url.removeprefix("http://")
    assert not {"cookie", "authorization", "referer"} & set(request.headers)


async def test_path_and_base_address_are_configuration() -> None:
    async with (
        fake_end(reply(200, {"success": False})) as end,
        source_at(f"{end.url}/base/", path="/v9/pull") as source,
    ):
        await source.pull(1, 5)
    assert end.request.path == "/base/v9/pull"


async def test_the_volume_is_asked_for_todays_date_in_upstreams_zone() -> None:
    zone = ZoneInfo("Pacific/Kiritimati")
    before = datetime.now(zone).date()
    answer = reply(200, {"status": 200, "data": 12345})
    async with fake_end(answer) as end, source_at(end.url, timezone=zone.key) as source:
        assert await source.volume() == 12345
    request = end.request
    assert (request.method, request.path) == ("GET", "/api/curnum")
    query = dict(request.query)
    assert query.pop("date") in {before.isoformat(), datetime.now(zone).date().isoformat()}
    assert query == {"phone": "1"}


# -- lists and single tickets --------------------------------------------------------------------------


async def test_a_list_becomes_tickets_with_all_that_the_later_stages_need() -> None:
    found = await pulled_entries(entry(), entry(good_id="i2", shop_id="s2", trace_id="trace-2", token="t2"))
    assert found.verdict is Verdict.ANSWERED
    assert (found.malformed, found.undated) == (0, 0)
    first, second = found.tickets
    assert (first.key, first.trace_id, first.token, first.stamp) == ("123:456:tw", "trace-1", "token-1", NOON)
    assert first.payload == {"shop_id": 123, "item_id": 456, "country": "tw"}
    assert (second.key, second.token) == ("s2:i2:tw", "t2")
    assert second.payload == {"shop_id": "s2", "item_id": "i2", "country": "tw"}


async def test_the_single_form_is_one_ticket() -> None:
    found = await pulled(reply(200, {"success": True, "task": entry()}))
    assert [ticket.trace_id for ticket in found.tickets] == ["trace-1"]


async def test_the_single_form_with_something_else_in_it_is_counted_as_malformed() -> None:
    found = await pulled(reply(200, {"success": True, "task": {"data": {"shop_id": 1}}}))
    assert (found.verdict, list(found.tickets), found.malformed) == (Verdict.ANSWERED, [], 1)


async def test_field_names_are_configuration() -> None:
    fields = {"shop_id": "s", "item_id": "i", "country": "c", "trace_id": "t", "token": "k"}
    fields["created_at"] = "w"
    data = {"s": 1, "i": 2, "c": "my", "t": "x", "k": "secret", "w": NOON}
    found = await pulled_entries({"data": data}, fields=fields)
    ticket = found.tickets[0]
    assert (ticket.key, ticket.trace_id, ticket.token, ticket.stamp) == ("1:2:my", "x", "secret", NOON)


@pytest.mark.parametrize(
    "document",
    [
        {"success": False},
        {"success": False, "tasks": [entry()]},
        {"success": False, "message": "no tasks"},
        {"success": True},
        {"success": True, "tasks": []},
        {"success": True, "tasks": None},
        {"success": True, "tasks": None, "task": None},
        {"success": True, "tasks": {}},
        {"success": True, "tasks": "none"},
        {"success": True, "tasks": 5},
        {"success": True, "task": []},
        {"success": True, "task": "none"},
        {"success": None},
        {},
    ],
)
async def test_no_success_or_no_list_means_no_tickets_and_is_no_fault(document: Any) -> None:
    found = await pulled(reply(200, document))
    assert found == Pulled(Verdict.ANSWERED, found.tickets)
    assert list(found.tickets) == []


@pytest.mark.parametrize("document", [[], [entry()], None, 5, "text", True])
async def test_json_that_is_no_object_is_a_fault(document: Any) -> None:
    found = await pulled(reply(200, orjson.dumps(document)))
    assert (found.verdict, list(found.tickets)) == (Verdict.FAULT, [])


# -- entries -------------------------------------------------------------------------------------------

NOT_NAMES: list[Any] = [None, "", [], {}, True, 1.5, ["tw"], "x" * 513, "a\0b"]
NOT_TICKETS: list[Any] = [
    None, 1, 1.5, True, "ticket", [], [entry()], {}, {"data": None}, {"data": []}, {"data": "x"},
    {"data": {}},
    *({"data": {name: value for name, value in DATA.items() if name != absent}}
      for absent in ("shop_id", "good_id", "country")),
    *(entry(**{name: value}) for name in ("shop_id", "good_id", "country")
      for value in NOT_NAMES),
]  # fmt: skip


async def test_what_is_no_ticket_is_counted_and_the_tickets_among_it_are_kept() -> None:
    mixed = [item for wrong in NOT_TICKETS for item in (wrong, entry())]
    found = await pulled_entries(*mixed)
    assert found.verdict is Verdict.ANSWERED
    assert found.malformed == len(NOT_TICKETS)
    assert len(found.tickets) == len(NOT_TICKETS)


@pytest.mark.parametrize("trace", [None, "", [], {}, True, 1.5, "x" * 513])
async def test_a_ticket_without_a_usable_trace_gets_one_of_its_own(trace: Any) -> None:
    found = await pulled_entries(entry(trace_id=trace), entry(trace_id=trace))
    traces = [ticket.trace_id for ticket in found.tickets]
    assert len(set(traces)) == 2
    assert all(traces)


@pytest.mark.parametrize("token", [True, [], {}, "a\nb", "a\r\nX-Evil: 1", "a\x00b", "ü", "x" * 9000])
async def test_a_ticket_with_a_token_that_cannot_be_a_header_is_malformed(token: Any) -> None:
    found = await pulled_entries(entry(token=token))
    assert (list(found.tickets), found.malformed) == ([], 1)


@pytest.mark.parametrize(("token", "used"), [(None, ""), (5, "5"), ("", "")])
async def test_a_token_that_is_absent_or_a_number_is_taken_as_text(token: Any, used: str) -> None:
    found = await pulled_entries(entry(token=token))
    assert [ticket.token for ticket in found.tickets] == [used]


@pytest.mark.parametrize("priority", [None, "high", [], 1.5, 1 << 40])
async def test_an_absurd_priority_is_none(priority: Any) -> None:
    found = await pulled_entries(entry(priority=priority), entry(priority=7))
    assert [ticket.priority for ticket in found.tickets] == [0, 7]


# -- created_at ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("created_at", "expected"),
    [
        ("2024-01-01 12:00:00", NOON),
        (" 2024-01-01 12:00:00 ", NOON),
        ("2024-01-01T12:00:00", NOON),
        ("2024-01-01T12:00:00+08:00", NOON),
        ("2024-01-01T04:00:00Z", NOON),
        ("2024-01-01T04:00:00.500Z", NOON + 0.5),
        (1704081600, NOON),
        (1704081600.25, NOON + 0.25),
        (1704081600000, NOON),
        ("1704081600", NOON),
        ("1704081600000", NOON),
    ],
)
async def test_every_usual_form_of_created_at_is_read(created_at: Any, expected: float) -> None:
    found = await pulled_entries(entry(created_at=created_at))
    assert found.tickets[0].stamp == expected
    assert found.undated == 0


async def test_local_time_is_read_in_the_configured_zone() -> None:
    found = await pulled_entries(entry(), timezone="UTC")
    assert found.tickets[0].stamp == datetime(2024, 1, 1, 12, tzinfo=UTC).timestamp()


UNREADABLE = [
    None, "", " ", "yesterday", "2024-13-45 99:99:99", "0000-00-00 00:00:00", "9" * 100, "nan", "inf",
    [], ["2024-01-01 12:00:00"], {}, {"at": 1}, True, False, 0, -1, -1704081600, 1e30, 10**18, "-5",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
]  # fmt: skip


async def test_an_unreadable_created_at_leaves_the_ticket_undated_and_is_counted() -> None:
    found = await pulled_entries(*(entry(created_at=value) for value in UNREADABLE))
    read = [
        (value, ticket.stamp)
        for value, ticket in zip(UNREADABLE, found.tickets, strict=True)
        if ticket.stamp is not None
    ]
    # The year 9999 is readable, and the pull stage takes what lies in the future for now.
    assert [value for value, _ in read] in ([], ["9999-12-31T23:59:59-14:00"])
    assert found.undated == len(UNREADABLE) - len(read)


async def test_an_absent_created_at_is_counted() -> None:
    data = {name: value for name, value in DATA.items() if name != "created_at"}
    found = await pulled_entries({"data": data}, entry())
    assert [ticket.stamp for ticket in found.tickets] == [None, NOON]
    assert found.undated == 1


# -- refusals and faults -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_auth(status: int) -> None:
    found = await pulled(reply(status, {"success": True, "tasks": [entry()]}))
    assert (found.verdict, list(found.tickets)) == (Verdict.AUTH, [])
    assert str(status) in found.detail


@pytest.mark.parametrize("status", [400, 404, 408, 429, 500, 502, 503])
async def test_any_other_refusal_is_a_fault(status: int) -> None:
    found = await pulled(reply(status, {"success": True, "tasks": [entry()]}))
    assert (found.verdict, list(found.tickets)) == (Verdict.FAULT, [])
    assert str(status) in found.detail


@pytest.mark.parametrize("name", ["Retry-After", "retry-after"])
@pytest.mark.parametrize(("value", "seconds"), [("7", 7.0), ("0", 0.0), ("-5", 0.0), ("999999", 60.0)])
async def test_retry_after_is_honoured_and_clamped(name: str, value: str, seconds: float) -> None:
    found = await pulled(reply(429, b"", {name: value}))
    assert (found.verdict, found.retry_after) == (Verdict.FAULT, seconds)


async def test_retry_after_may_be_a_date() -> None:
    found = await pulled(reply(503, b"", {"Retry-After": formatdate(time.time() + 40, usegmt=True)}))
    assert found.retry_after is not None
    assert 5 < found.retry_after <= 41


@pytest.mark.parametrize("value", ["soon", "nan", "Wed, 99 Foo 2024", ""])
async def test_an_unreadable_retry_after_is_none(value: str) -> None:
    found = await pulled(reply(429, b"", {"Retry-After": value}))
    assert (found.verdict, found.retry_after) == (Verdict.FAULT, None)


async def test_a_redirect_is_a_fault_and_nobody_follows_it() -> None:
    found = await pulled(reply(302, b"", {"Location": "/api/get/tasks"}))
    assert found.verdict is Verdict.FAULT


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b'{"success":true,"tasks":[', b'{"success":NaN}', b'{"a":"\xff', b"[" * 100_000],
)
async def test_what_is_not_json_is_a_fault(body: bytes) -> None:
    found = await pulled(reply(200, body))
    assert (found.verdict, list(found.tickets)) == (Verdict.FAULT, [])


@pytest.mark.parametrize(
    "answer",
    [
        raw(b"garbage\r\n\r\n"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", then="close"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", then="reset"),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Encoding: gzip\r\n\r\nnot gzip!"),
    ],
)
async def test_a_broken_connection_is_a_fault(answer: Play) -> None:
    assert (await pulled(answer)).verdict is Verdict.FAULT


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_hang_up_without_an_answer_is_a_fault(how: str) -> None:
    async with fake_end(rest=raw(b"", then=how)) as end, source_at(end.url) as source:
        assert (await source.pull(5, 5)).verdict is Verdict.FAULT
        assert await source.volume() is None


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_pull_is_never_sent_twice_behind_our_back(how: str) -> None:
    async with fake_end(rest=raw(b"", then=how)) as end, source_at(end.url) as source:
        await source.pull(5, 5)
    assert len(end.requests) == 1


async def test_a_pull_that_is_not_answered_ends_at_its_time_out() -> None:
    assert (await pulled(raw(b"", then="hang"), timeout=0.2)).verdict is Verdict.FAULT
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    assert (await pulled(raw(head, then="hang"), timeout=0.2)).verdict is Verdict.FAULT


async def test_nobody_listening_is_a_fault() -> None:
    async with source_at(unused_url()) as source:
        assert (await source.pull(5, 5)).verdict is Verdict.FAULT
        assert await source.volume() is None


async def test_a_certificate_nobody_vouches_for_is_a_fault_that_says_tls() -> None:
    async with fake_end(tls=self_signed()) as end, source_at(end.url) as source:
        found = await source.pull(5, 5)
    assert found.verdict is Verdict.FAULT
    assert found.detail.startswith("TLS")
    assert found.trouble == "tls"
    assert end.requests == []


async def test_no_fault_names_the_phone() -> None:
    answers = [reply(500), reply(401), reply(200, b"<"), raw(b"junk\r\n\r\n")]
    async with fake_end(*answers) as end:
        config = PullConfig(url=end.url, phone=SecretStr("13800001111"))
        async with opened(HttpSource(config, SystemClock(), 4)) as source:
            details = [(await source.pull(5, 5)).detail for _ in answers]
    config = PullConfig(url=unused_url(), phone=SecretStr("13800001111"))
    async with opened(HttpSource(config, SystemClock(), 4)) as dead:
        details.append((await dead.pull(5, 5)).detail)
    assert all(details)
    assert not any("13800001111" in detail for detail in details)


# -- size ----------------------------------------------------------------------------------------------


async def test_a_body_declared_larger_than_the_limit_is_a_fault() -> None:
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 20971520\r\n\r\n" + b" " * 1000
    found = await pulled(raw(begun, then="hang"))
    assert found.verdict is Verdict.FAULT


async def test_20_mb_that_were_not_declared_are_cut_off() -> None:
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    found = await pulled(endless(LONG_STREAM + b"\r\n", chunk))
    assert found.verdict is Verdict.FAULT


async def test_a_gzip_bomb_is_cut_off_before_it_is_inflated() -> None:
    bomb = gzip.compress(b" " * (64 << 20), 9)
    tracemalloc.start()
    try:
        found = await pulled(reply(200, bomb, {"Content-Encoding": "gzip"}), max_body=1 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.verdict is Verdict.FAULT
    assert peak < 32 << 20


async def test_gzip_that_fits_is_read() -> None:
    body = gzip.compress(orjson.dumps({"success": True, "tasks": [entry()] * 3}))
    assert len((await pulled(reply(200, body, {"Content-Encoding": "gzip"}))).tickets) == 3


async def test_a_million_tickets_over_the_body_limit_are_a_fault_within_bounded_memory() -> None:
    line = orjson.dumps(entry()) + b","
    body = b'{"success":true,"tasks":[' + line * 1_000_000 + b"null]}"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = await pulled(reply(200, body))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.verdict is Verdict.FAULT
    assert grown < 500 * 1024  # KiB; the body itself is 175 MB and was built by the test


async def test_a_million_entries_within_the_body_limit_are_all_counted() -> None:
    tickets = b'{"shop_id":1,"good_id":2,"country":"t"},' * 100_000
    found = await pulled(reply(200, b'{"success":true,"tasks":[' + tickets + b"0," * 899_999 + b"0]}"))
    assert found.verdict is Verdict.ANSWERED
    assert (len(found.tickets), found.malformed, found.undated) == (100_000, 900_000, 100_000)


# -- volume --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, {"status": 200}),
        reply(200, {"status": 200, "data": None}),
        reply(200, {"status": 200, "data": "many"}),
        reply(200, {"status": 200, "data": True}),
        reply(200, {"status": 200, "data": {"n": 1}}),
        reply(200, []),
        reply(200, b"null"),
        reply(200, b"<html>"),
        reply(200, b""),
        reply(500, {"error": "x"}),
    ],
)
async def test_a_volume_that_is_not_said_is_none(answer: Play) -> None:
    async with fake_end(answer) as end, source_at(end.url) as source:
        assert await source.volume() is None


@pytest.mark.parametrize(
    "answer", [reply(500, {"status": 500, "data": 0}), reply(200, {"status": 401, "data": 0})]
)
async def test_a_refused_volume_is_not_taken_for_a_number(answer: Play) -> None:
    async with fake_end(answer) as end, source_at(end.url) as source:
        assert await source.volume() is None
