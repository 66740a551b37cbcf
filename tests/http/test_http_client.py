"""What every HTTP client of the house must do, against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import gc
import gzip
import os
import resource
import socket
import ssl
import sys
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from raw_server import Open, Play, Wire, always, answers, chunked, once, raw_server, sized

from pipeline.errors import (
    BodyTooLarge,
    CallFailed,
    Garbled,
    OutOfDescriptors,
    TimedOut,
    Unreachable,
    Untrusted,
)
from pipeline.http import Client, HttpClient, Response, pool
from pipeline.http.resolver import AddressInfo, Resolver

MB = 1 << 20
SOON = 0.15  # a deadline that is meant to come
LATE = 15.0  # a deadline that is not


async def get(client: Client, url: str, timeout: float = LATE) -> Response:
    return await client.call("GET", url, timeout)


# -- answers as they should be ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 1000, 4096, 100_000, MB])
async def test_a_body_of_known_size_arrives_whole(client: Client, size: int) -> None:
    body = os.urandom(size)
    async with raw_server(always(sized(body))) as server:
        for _ in range(3):
            assert bytes((await get(client, server.url)).body) == body
        assert server.accepted == 1, "one connection served all three"


@pytest.mark.parametrize("pieces", [[b"x"], [b"one", b"two" * 9000, b"3"], [b"y" * 100_000], []])
async def test_chunks_arrive_as_one_body(client: Client, pieces: list[bytes]) -> None:
    async with raw_server(always(chunked(*pieces, trailers=b"X-Sum: 1\r\n"))) as server:
        for _ in range(2):
            assert bytes((await get(client, server.url)).body) == b"".join(pieces)
        assert server.accepted == 1


async def test_status_and_headers_come_back_in_any_case(client: Client) -> None:
    async with raw_server(answers(sized(b"", "X-One: 1", "x-two:  2 ", status="418 I'm"))) as server:
        reply = await get(client, server.url)
    assert reply.status == 418
    assert (reply.headers["x-one"], reply.headers.get("X-TWO")) == ("1", "2")
    assert "X-Two" in reply.headers
    assert "X-Three" not in reply.headers
    assert reply.headers.get("X-Three") is None


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_body_may_end_with_the_connection(client: Client, version: str) -> None:
    async with raw_server(once(f"HTTP/{version} 200 OK\r\n\r\n".encode() + b"z" * 70_000)) as server:
        assert bytes((await get(client, server.url)).body) == b"z" * 70_000
        assert bytes((await get(client, server.url)).body) == b"z" * 70_000
        assert server.accepted == 2


async def test_connection_close_is_obeyed(client: Client) -> None:
    async with raw_server(answers(sized(b"a", "Connection: close"))) as server:
        await get(client, server.url)
        await server.settled(0)
        await get(client, server.url)
        assert server.accepted == 2


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_some_answers_have_no_body(client: Client, status: str) -> None:
    async with raw_server(always(f"HTTP/1.1 {status}\r\nX: y\r\n\r\n".encode())) as server:
        for _ in range(2):
            assert not (await get(client, server.url)).body
        assert server.accepted == 1


async def test_an_answer_to_head_announces_a_body_that_does_not_come(client: Client) -> None:
    async with raw_server(always(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")) as server:
        for _ in range(2):
            assert not (await client.call("HEAD", server.url, LATE)).body
        assert server.accepted == 1


async def test_interim_answers_are_skipped(client: Client) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    async with raw_server(always(interim + sized(b"final"))) as server:
        for _ in range(2):
            assert bytes((await get(client, server.url)).body) == b"final"
        assert server.accepted == 1


async def test_a_redirect_is_an_answer_like_any_other(client: Client) -> None:
    async with raw_server(always(sized(b"", "Location: /other", status="302 Found"))) as server:
        assert (await get(client, server.url)).status == 302


# -- what is sent ----------------------------------------------------------------------------------


async def requests_of(client: Client, *calls: dict[str, object], response: bytes = b"") -> list[bytes]:
    seen: list[bytes] = []

    async def play(wire: Wire) -> None:
        while True:
            seen.append(await wire.request())
            await wire.send(response or sized(b"ok"))

    async with raw_server(play) as server:
        for call in calls:
            await client.call(url=server.url, timeout=LATE, **call)  # type: ignore[arg-type]
    return seen


async def test_a_request_is_sent_as_asked(client: Client) -> None:
    headers = {"Authorization": "Bearer ü-漢字", "Content-Type": "application/json"}
    (seen,) = await requests_of(client, {"method": "POST", "headers": headers, "body": b'{"a":1}'})
    head, _, body = seen.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
    assert lines[0] == b"POST /path HTTP/1.1"
    assert body == b'{"a":1}'
    assert fields[b"authorization"] == "Bearer ü-漢字".encode()
    assert fields[b"content-length"] == b"7"
    assert fields[b"accept-encoding"] == b"gzip"
    assert fields[b"user-agent"] == b"tidegate"
    assert fields[b"host"].startswith(b"127.0.0.1:")


async def test_parameters_are_quoted(client: Client) -> None:
    (seen,) = await requests_of(client, {"method": "GET", "params": {"a": "1 &=ü\r\nX: y", "b": ""}})
    line = seen.partition(b"\r\n")[0]
    assert line.startswith(b"GET /path?a=1")
    assert b"%26" in line
    assert b"%0D%0AX" in line
    assert b"X: y\r\n" not in seen


async def test_cookies_are_not_kept(client: Client) -> None:
    calls = [{"method": "GET"}, {"method": "GET"}]
    seen = await requests_of(client, *calls, response=sized(b"", "Set-Cookie: a=b"))
    assert len(seen) == 2
    assert b"cookie" not in seen[1].lower()


async def test_proxies_in_the_environment_are_not_used(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert len(await requests_of(client, {"method": "GET"})) == 1


async def test_a_large_body_is_sent_whole(client: Client) -> None:
    body = os.urandom(3 * MB)
    (seen,) = await requests_of(client, {"method": "POST", "body": body})
    assert seen.endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nX: y", "a\rb", "a\x00b", "a\r\n\r\nGET / HTTP/1.1"])
async def test_a_header_cannot_begin_another(client: Client, value: str) -> None:
    async with raw_server(always(sized(b""))) as server:
        with pytest.raises(CallFailed):
            await client.call("POST", server.url, LATE, headers={"Authorization": value}, body=b"{}")
        with pytest.raises(CallFailed):
            await client.call("POST", server.url, LATE, headers={value: "x"}, body=b"{}")
        assert server.accepted == 0


# -- compressed bodies -----------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "identity"])
@pytest.mark.parametrize("in_chunks", [False, True])
async def test_compressed_bodies_are_unpacked(client: Client, encoding: str, in_chunks: bool) -> None:
    body = b'{"a":1}' * 20_000
    pack = {"gzip": gzip.compress, "deflate": zlib.compress}.get(encoding.lower(), bytes)
    header = f"Content-Encoding: {encoding}"
    packed = pack(body)
    halves = packed[: len(packed) // 2], packed[len(packed) // 2 :]
    response = chunked(*halves, headers=header + "\r\n") if in_chunks else sized(packed, header)
    async with raw_server(answers(response)) as server:
        assert bytes((await get(client, server.url)).body) == body


async def test_a_bomb_is_cut_at_the_limit(client: Client) -> None:
    bomb = gzip.compress(bytes(20 * MB))
    async with raw_server(answers(sized(bomb, "Content-Encoding: gzip"))) as server:
        with pytest.raises(BodyTooLarge):
            await get(client, server.url)


async def test_the_limit_itself_is_allowed_after_unpacking(open_client: Open) -> None:
    client = await open_client(max_body=5000)
    async with raw_server(answers(sized(gzip.compress(bytes(5000)), "Content-Encoding: gzip"))) as server:
        assert len((await get(client, server.url)).body) == 5000


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(b"x" * 5000)[:-9], "gzip"),
        (gzip.compress(b"x" * 5000)[:12], "gzip"),
        (b"not compressed at all", "gzip"),
        (b"whatever", "br"),
    ],
    ids=["no end", "hardly begun", "not compressed", "not asked for"],
)
async def test_what_cannot_be_unpacked_is_garbled(client: Client, body: bytes, encoding: str) -> None:
    async with raw_server(answers(sized(body, f"Content-Encoding: {encoding}"))) as server:
        with pytest.raises(Garbled):
            await get(client, server.url)


# -- limits ----------------------------------------------------------------------------------------


async def test_an_announced_size_over_the_limit_is_refused_unread(client: Client) -> None:
    response = f"HTTP/1.1 200 OK\r\nContent-Length: {MB + 1}\r\n\r\n".encode()
    async with raw_server(once(response, then="hang")) as server:
        with pytest.raises(BodyTooLarge):
            await get(client, server.url)
        await server.settled(0)


@pytest.mark.parametrize("head", ["Transfer-Encoding: chunked\r\n", ""])
async def test_twenty_megabytes_are_cut_at_the_limit(client: Client, head: str) -> None:
    sent = 0

    async def play(wire: Wire) -> None:
        nonlocal sent
        await wire.request()
        await wire.send(f"HTTP/1.1 200 OK\r\n{head}\r\n".encode())
        for _ in range(320):
            await wire.send((b"10000\r\n" if head else b"") + bytes(0x10000) + (b"\r\n" if head else b""))
            sent += 0x10000

    async with raw_server(play) as server:
        with pytest.raises(BodyTooLarge):
            await get(client, server.url)
        await server.settled(0)
    assert sent < 20 * MB


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"HTTP/1.1 200 " + b"y" * 200_000 + b"\r\n\r\n",
    ],
)
async def test_a_huge_head_is_garbled(client: Client, response: bytes) -> None:
    async with raw_server(once(response, then="hang")) as server:
        with pytest.raises(Garbled):
            await get(client, server.url)
        await server.settled(0)


# -- answers that are none -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "response",
    [
        b"hello\r\n\r\n",
        b"\x00\xff" * 50,
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/7.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n0\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_garbled_at_once(client: Client, response: bytes) -> None:
    async with raw_server(once(response, then="hang")) as server:
        with pytest.raises(Garbled):
            await client.call("POST", server.url, LATE, body=b"{}")
        await server.settled(0)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhalf",
    ],
)
@pytest.mark.parametrize("then", ["close", "reset"])
async def test_a_connection_that_breaks_after_sending_is_garbled(
    client: Client, begun: bytes, then: str
) -> None:
    """Not `Unreachable`: the request may have been served, and paid."""
    async with raw_server(once(begun, then)) as server:
        with pytest.raises(Garbled):
            await client.call("POST", server.url, LATE, body=b"{}")
        assert server.accepted == 1


# -- deadlines -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"]
)
async def test_a_hang_is_ended_by_the_deadline(client: Client, begun: bytes) -> None:
    async with raw_server(once(begun, then="hang")) as server:
        with pytest.raises(TimedOut):
            await client.call("POST", server.url, SOON, body=b"{}")
        await server.settled(0)


@pytest.mark.parametrize(
    ("head", "drop"),
    [("Content-Length: 100000", b"x"), ("Transfer-Encoding: chunked", b"1\r\nx\r\n"), ("X: y", b"x")],
)
async def test_a_body_that_trickles_is_ended_by_the_deadline(client: Client, head: str, drop: bytes) -> None:
    async def play(wire: Wire) -> None:
        await wire.request()
        await wire.send(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        while True:
            await wire.send(drop)
            await asyncio.sleep(SOON / 20)

    async with raw_server(play) as server:
        with pytest.raises(TimedOut):
            await get(client, server.url, SOON)
        await server.settled(0)


async def test_a_receiver_that_does_not_read_is_ended_by_the_deadline(client: Client) -> None:
    given_up = asyncio.Event()

    async def play(_: Wire) -> None:
        await given_up.wait()

    async with raw_server(play) as server:
        with pytest.raises(TimedOut):
            await client.call("POST", server.url, SOON, body=bytes(16 * MB))
        given_up.set()


# -- before anything is sent -----------------------------------------------------------------------


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def test_nobody_listening_is_unreachable(client: Client) -> None:
    with pytest.raises(Unreachable) as caught:
        await client.call("GET", f"http://127.0.0.1:{unused_port()}/", LATE, params={"phone": "secret-1"})
    assert "secret" not in str(caught.value)


async def test_a_host_that_does_not_exist_is_unreachable(client: Client) -> None:
    with pytest.raises(Unreachable):
        await get(client, "http://nowhere.invalid/")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://", "nonsense", "http://127.0.0.1:port/"])
async def test_a_url_that_cannot_be_called_is_a_failed_call(client: Client, url: str) -> None:
    with pytest.raises(CallFailed):
        await get(client, url)


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_file_descriptors_nothing_is_reachable_until_there_are_some(client: Client) -> None:
    held, go_on = asyncio.Event(), asyncio.Event()

    async def play(wire: Wire) -> None:
        await wire.request()
        held.set()
        await go_on.wait()
        await wire.send(sized(b"ok", "Connection: close"))

    async with raw_server(play) as server:
        first = asyncio.create_task(get(client, server.url))
        await held.wait()
        with no_descriptors_left(), pytest.raises(OutOfDescriptors, match="no file descriptors left"):
            await get(client, server.url)
        go_on.set()
        await first
        assert bytes((await get(client, server.url)).body) == b"ok"


async def test_a_name_that_is_not_found_for_want_of_descriptors_says_so(client: Client) -> None:
    with pytest.raises(Unreachable):  # whatever a look-up opens for good is open now
        await get(client, "http://nowhere.invalid/")
    with no_descriptors_left(), pytest.raises(OutOfDescriptors):
        await get(client, "http://nowhere.invalid/")


# -- connections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_connection_whose_end_was_seen_is_not_used_again(client: Client, method: str) -> None:
    seen = asyncio.Event()

    async def play(wire: Wire) -> None:
        await wire.request()
        await wire.send(sized(b"ok"))
        wire.hang_up()
        await wire.gone()
        seen.set()

    async with raw_server(play) as server:
        for number in (1, 2):
            await client.call(method, server.url, LATE)
            await seen.wait()
            seen.clear()
            assert server.accepted == number


def stale_once() -> tuple[list[bytes], Play]:
    """The first connection answers one request and hangs up on the second; later ones answer all."""
    requests: list[bytes] = []
    connections = 0

    async def play(wire: Wire) -> None:
        nonlocal connections
        connections += 1
        stale = connections == 1
        while True:
            requests.append(await wire.request())
            if stale and len(requests) == 2:
                return
            await wire.send(sized(b"ok"))

    return requests, play


async def test_a_get_on_a_stale_connection_is_sent_again(client: Client) -> None:
    requests, play = stale_once()
    async with raw_server(play) as server:
        await get(client, server.url)
        assert bytes((await get(client, server.url)).body) == b"ok"
        assert (server.accepted, len(requests)) == (2, 3)


async def test_a_post_on_a_stale_connection_is_not_sent_again(client: Client) -> None:
    requests, play = stale_once()
    async with raw_server(play) as server:
        await client.call("POST", server.url, LATE, body=b"{}")
        with pytest.raises(Garbled):
            await client.call("POST", server.url, LATE, body=b"{}")
        assert (server.accepted, len(requests)) == (1, 2)


async def test_what_follows_an_answer_unasked_is_nobodys_answer(client: Client) -> None:
    def response(number: int) -> bytes:
        return sized(b"%d" % number) + sized(b"forged")

    connections = 0

    async def play(wire: Wire) -> None:
        nonlocal connections
        connections += 1
        await wire.request()
        await wire.send(response(connections))
        await wire.gone()

    async with raw_server(play) as server:
        for number in (1, 2, 3):
            assert bytes((await get(client, server.url)).body) == b"%d" % number
            await server.settled(0)


async def test_an_answer_before_the_request_was_read_is_taken(client: Client) -> None:
    connections = 0

    async def play(wire: Wire) -> None:
        nonlocal connections
        connections += 1
        await wire.head()
        await wire.send(sized(b"too much", status="413 Too Large"))
        await wire.gone()

    async with raw_server(play) as server:
        for number in (1, 2):
            reply = await client.call("POST", server.url, LATE, body=bytes(8 * MB))
            assert (reply.status, connections) == (413, number)


async def test_no_more_connections_than_the_pool_has(open_client: Open) -> None:
    client = await open_client(pool_size=2)
    both, waiting = asyncio.Event(), 0

    async def play(wire: Wire) -> None:
        nonlocal waiting
        while True:
            await wire.request()
            waiting += 1
            if waiting == 2:
                both.set()
            await both.wait()
            await wire.send(sized(b"ok"))

    async with raw_server(play) as server:
        replies = await asyncio.gather(*(get(client, server.url) for _ in range(9)))
        assert all(bytes(reply.body) == b"ok" for reply in replies)
        assert (server.accepted, server.peak) == (2, 2)


async def test_waiting_for_the_pool_counts_against_the_deadline(open_client: Open) -> None:
    client = await open_client(pool_size=1)
    requests, go_on = 0, asyncio.Event()

    async def play(wire: Wire) -> None:
        nonlocal requests
        while True:
            await wire.request()
            requests += 1
            await go_on.wait()
            await wire.send(sized(b"ok"))

    async with raw_server(play) as server:
        first = asyncio.create_task(get(client, server.url))
        await server.settled(1)
        with pytest.raises(Unreachable, match="no connection"):
            await client.call("POST", server.url, SOON, body=b"{}")
        assert requests == 1, "nothing was sent, so nothing was paid"
        go_on.set()
        await first
        await get(client, server.url)


async def test_a_cancelled_call_leaves_nothing_behind(open_client: Open) -> None:
    client = await open_client(pool_size=1)
    begun = asyncio.Event()

    async def play(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        begun.set()
        await wire.gone()

    async with raw_server(play) as server:
        for number in (1, 2, 3):
            call = asyncio.create_task(get(client, server.url))
            await begun.wait()
            begun.clear()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await server.settled(0)
            assert server.accepted == number


async def test_a_call_cancelled_while_it_waits_gives_up_its_place(open_client: Open) -> None:
    client = await open_client(pool_size=1)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def play(wire: Wire) -> None:
        while True:
            await wire.request()
            held.set()
            await go_on.wait()
            await wire.send(sized(b"ok"))

    async with raw_server(play) as server:
        first = asyncio.create_task(get(client, server.url))
        await held.wait()
        second, third = (asyncio.create_task(get(client, server.url)) for _ in range(2))
        await asyncio.sleep(0)
        second.cancel()
        go_on.set()
        await asyncio.gather(first, third)
        assert second.cancelled()
        assert server.accepted == 1


async def test_closing_ends_idle_connections(kind: type[Client]) -> None:
    client = kind(4, MB)
    await client.open()
    async with raw_server(always(sized(b"ok"))) as server:
        await asyncio.gather(*(get(client, server.url) for _ in range(4)))
        await client.close()
        await server.settled(0)
    await client.close()


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """Trusted the way an operator would make it so."""
    found = trustme.CA()
    found.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return found


def serving(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


@pytest.mark.parametrize("size", [10, 100_000, MB])
async def test_tls_with_a_good_certificate(authority: trustme.CA, open_client: Open, size: int) -> None:
    client = await open_client()
    body = os.urandom(size)
    async with raw_server(always(sized(body)), serving(authority.issue_cert("127.0.0.1"))) as server:
        for _ in range(3):
            reply = await client.call("POST", server.url, LATE, body=body)
            assert bytes(reply.body) == body
        assert server.accepted == 1


async def test_tls_with_an_expired_certificate_is_refused(authority: trustme.CA, open_client: Open) -> None:
    now = datetime.now(UTC)
    expired = authority.issue_cert(
        "127.0.0.1", not_before=now - timedelta(days=9), not_after=now - timedelta(days=2)
    )
    await refused(await open_client(), serving(expired))


async def test_tls_for_another_host_is_refused(authority: trustme.CA, open_client: Open) -> None:
    await refused(await open_client(), serving(authority.issue_cert("other.example")))


async def test_tls_of_an_unknown_authority_is_refused(authority: trustme.CA, open_client: Open) -> None:
    await refused(await open_client(), serving(trustme.CA().issue_cert("127.0.0.1")))


async def refused(client: Client, context: ssl.SSLContext) -> None:
    seen: list[bytes] = []

    async def play(wire: Wire) -> None:
        seen.append(await wire.request())

    async with raw_server(play, context) as server:
        with pytest.raises(Untrusted):
            await client.call("POST", server.url, LATE, body=b"{}")
    assert not seen


async def test_tls_towards_a_server_without_it_is_refused(client: Client) -> None:
    async def play(wire: Wire) -> None:
        await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await wire.gone()

    async with raw_server(play) as server:
        with pytest.raises(Untrusted):
            await get(client, server.url.replace("http:", "https:"))


# -- ours alone ------------------------------------------------------------------------------------


@pytest.fixture
async def ours() -> AsyncIterator[HttpClient]:
    client = HttpClient(4, MB)
    await client.open()
    yield client
    await client.close()


async def test_a_get_on_a_fresh_connection_is_never_sent_twice(ours: HttpClient) -> None:
    """aiohttp does send it again, and a pull that is sent twice hands out tickets that nobody takes."""
    async with raw_server(once(b"")) as server:
        with pytest.raises(Garbled):
            await get(ours, server.url)
        assert server.accepted == 1


async def test_a_reset_is_not_mistaken_for_the_end_of_a_body(ours: HttpClient) -> None:
    """aiohttp takes what came until then as the whole body."""
    arrived = asyncio.Event()

    async def play(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\nhalf")
        await arrived.wait()
        wire.reset()

    async with raw_server(play) as server:
        call = asyncio.create_task(get(ours, server.url))
        await server.settled(1)
        await asyncio.sleep(0)
        arrived.set()
        with pytest.raises(Garbled):
            await call


async def test_all_addresses_of_a_host_are_tried(ours: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async with raw_server(always(sized(b"ok"))) as server:
        port = int(server.url.rpartition(":")[2].removesuffix("/path"))
        dead, live = ((2, 1, 6, "", ("127.0.0.1", number)) for number in (unused_port(), port))

        async def both(*_: object) -> list[AddressInfo]:
            return [dead, live]

        monkeypatch.setattr(Resolver, "addresses", both)
        assert bytes((await get(ours, "http://two.example/")).body) == b"ok"


async def test_a_connection_idle_too_long_is_not_used_again(
    ours: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(always(sized(b"ok"))) as server:
        await get(ours, server.url)
        monkeypatch.setattr(pool, "IDLE_MAX", 0.0)
        await get(ours, server.url)
        assert server.accepted == 2


async def test_idle_connections_are_closed_though_nobody_calls(
    ours: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_MAX", 0.02)
    async with raw_server(always(sized(b"ok"))) as server:
        await asyncio.gather(*(get(ours, server.url) for _ in range(3)))
        await server.settled(0)


async def test_idle_connections_to_one_host_make_room_for_another(ours: HttpClient) -> None:
    async with raw_server(always(sized(b"a"))) as first, raw_server(always(sized(b"b"))) as second:
        await asyncio.gather(*(get(ours, first.url) for _ in range(4)))
        await asyncio.gather(*(get(ours, second.url) for _ in range(4)))
        assert second.accepted == 4
        await first.settled(0)


async def test_closing_ends_calls_and_those_that_wait() -> None:
    client = HttpClient(1, MB)
    await client.open()
    async with raw_server(once(b"", then="hang")) as server:
        calls = [asyncio.create_task(client.call("POST", server.url, LATE, body=b"{}")) for _ in range(2)]
        await server.settled(1)
        await client.close()
        errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] in ([Garbled, Unreachable], [Unreachable, Unreachable])


# -- what is left behind ---------------------------------------------------------------------------


async def never(wire: Wire) -> None:
    await wire.gone()


@contextmanager
def nothing_collected() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "play",
    [
        pytest.param(never, id="never answers"),
        pytest.param(once(b""), id="hangs up"),
        pytest.param(once(sized(b"x" * 100)[:-1]), id="cut off"),
        pytest.param(once(b"nonsense\r\n\r\n"), id="garbled"),
        pytest.param(once(sized(b"x" * 9000)), id="too large"),
    ],
)
async def test_a_call_that_failed_keeps_its_body_from_nobody(play: Play) -> None:
    """In an outage thousands fail a second: 100 KB each must not wait for the collector."""

    async def fails(url: str) -> bool:
        try:
            await client.call("POST", url, SOON if play is never else LATE, body=body)
        except CallFailed:
            return True
        return False

    body, client = os.urandom(100_000), HttpClient(1, 8000)
    await client.open()
    async with raw_server(play) as server:
        with nothing_collected():
            before = sys.getrefcount(body)
            assert await fails(server.url)
            await server.settled(0)
            await client.close()
            assert sys.getrefcount(body) == before
