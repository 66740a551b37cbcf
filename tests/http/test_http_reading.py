"""How a response is taken apart, however it is cut into pieces; and what its headers mean."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from email.utils import formatdate
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from raw_server import chunked, sized

from pipeline.errors import CallFailed, Garbled
from pipeline.http import Headers, Response, retry_after
from pipeline.http.connection import NEXT_READ, Connection
from pipeline.http.request import header_lines, request_bytes, target_of

NOW = 1_700_000_000.0
BODY = bytes(range(256)) * 40
#: A busy machine is no failure.
UNHURRIED = settings(deadline=None)


class Sent:
    """A transport that takes all and says nothing."""

    aborted = False

    def write(self, data: bytes) -> None: ...

    def writelines(self, data: Any) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True


def feed(connection: Connection, data: bytes, cuts: Iterator[int]) -> None:
    """As a transport would: into the buffer it is given, at most as much as fits."""
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), len(data), next(cuts))
        room[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


def read(data: bytes, cuts: list[int], ended: bool = False) -> Response:
    async def exchange() -> Response:
        loop = asyncio.get_running_loop()
        connection = Connection(loop, memoryview(bytearray(NEXT_READ)), 1 << 20)
        connection.connection_made(cast(asyncio.Transport, Sent()))
        call = asyncio.create_task(connection.exchange("GET", (b"", b""), loop.time() + 60, 60))
        await asyncio.sleep(0)
        feed(connection, data, (size for _ in iter(int, 1) for size in cuts))
        if ended:
            connection.eof_received()
        return await call

    return asyncio.run(exchange())


@pytest.mark.parametrize(
    ("data", "ended"),
    [
        (sized(BODY, "X: y"), False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + sized(BODY), False),
        (chunked(BODY[:1], BODY[1:5000], BODY[5000:], headers="X: y\r\n", trailers=b"T: 1\r\n"), False),
        (b"HTTP/1.0 200 OK\r\n\r\n" + BODY, True),
    ],
    ids=["sized", "interim", "chunked", "until the end"],
)
@UNHURRIED
@given(cuts=st.lists(st.integers(1, 5000), min_size=1, max_size=8))
@example(cuts=[1])
@example(cuts=[1 << 20])
def test_a_response_is_the_same_however_it_is_cut(data: bytes, ended: bool, cuts: list[int]) -> None:
    reply = read(data, cuts, ended)
    assert (reply.status, bytes(reply.body)) == (200, BODY)


@UNHURRIED
@given(junk=st.binary(min_size=1, max_size=300), cuts=st.lists(st.integers(1, 50), min_size=1, max_size=4))
def test_no_bytes_are_a_crash(junk: bytes, cuts: list[int]) -> None:
    for data in (junk, b"HTTP/1.1 200 OK\r\n" + junk, chunked(BODY)[:-5] + junk):
        try:
            reply = read(data, cuts, ended=True)
        except CallFailed:
            continue
        assert 200 <= reply.status <= 999


def test_headers_that_come_twice_are_joined() -> None:
    reply = read(sized(b"", "X: 1", "x: 2"), [99])
    assert reply.headers["X"] == "1, 2"
    assert dict(reply.headers) == {"content-length": "0", "x": "1, 2"}


def test_an_interim_flood_is_garbled() -> None:
    with pytest.raises(Garbled):
        read(b"HTTP/1.1 102 Processing\r\n\r\n" * 10_000, [4096])


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        (" 1.5 ", 1.5),
        ("0", 0.0),
        ("-3", 0.0),
        ("999999", 60.0),
        ("inf", 60.0),
        (formatdate(NOW + 30, usegmt=True), 30.0),
        (formatdate(NOW - 30, usegmt=True), 0.0),
        (formatdate(NOW + 9999, usegmt=True), 60.0),
        ("nan", None),
        ("soon", None),
        ("", None),
        ("Mon, 99 Foo 2024 99:99:99 GMT", None),
    ],
)
def test_retry_after_in_all_its_forms(value: str, seconds: float | None) -> None:
    assert retry_after(Headers({"retry-after": value}), NOW) == seconds


def test_no_retry_after_is_none() -> None:
    assert retry_after(Headers({}), NOW) is None


@UNHURRIED
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=4))
def test_header_lines_are_as_many_as_headers_or_refused(headers: Mapping[str, str]) -> None:
    try:
        lines = header_lines(headers)
    except CallFailed:
        return
    assert lines.count("\r\n") == lines.count("\n") == lines.count("\r") == len(headers)
    assert [line.split(": ", 1) for line in lines.split("\r\n")[:-1]] == [[*pair] for pair in headers.items()]


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://a.example", b"GET / HTTP/1.1", b"a.example"),
        ("http://a.example:80/x", b"GET /x HTTP/1.1", b"a.example"),
        ("https://a.example:8443/x?y=1", b"GET /x?y=1&k=v+w HTTP/1.1", b"a.example:8443"),
        ("http://[::1]:81/ü x", b"GET /%C3%BC%20x HTTP/1.1", b"[::1]:81"),
        ("http://bücher.example/", b"GET / HTTP/1.1", b"xn--bcher-kva.example"),
    ],
)
def test_a_url_becomes_a_request_line_and_a_host(url: str, line: bytes, host: bytes) -> None:
    params = {"k": "v w"} if "?" in url else None
    head, rest = request_bytes("GET", url, params, None, None)
    assert head.startswith(line + b"\r\nHost: " + host + b"\r\n")
    assert not rest


@pytest.mark.parametrize("url", ["http://user:pass@a.example/", "http://a b/", "http://a.example:99999/"])
def test_a_url_that_says_more_than_where_is_refused_without_being_named(url: str) -> None:
    with pytest.raises(CallFailed) as caught:
        target_of(url)
    assert url not in str(caught.value)
