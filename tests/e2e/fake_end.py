"""A far end on a real socket that answers from a script and fails the test on anything it did not expect."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import orjson

from pipeline.ports import Port

P = TypeVar("P", bound=Port)
HEAD_MAX = 1 << 16

#: Far longer than anything here takes; a call that needs it has hung.
PATIENCE = 20.0


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    target: str
    headers: Mapping[str, list[str]]  # names in lower case
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True, strict_parsing=True)

    def header(self, name: str) -> str:
        """The header's one value; twice or never is a failure."""
        values = self.headers.get(name.lower(), [])
        assert len(values) == 1, f"{name}: {values}"
        return values[0]

    def json(self) -> Any:
        return orjson.loads(self.body)


Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]]


def reply(
    status: int = 200, body: bytes | object = b"", headers: Mapping[str, str] | None = None, reason: str = "X"
) -> Play:
    """A whole answer; a body that is not bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    lines = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return raw(f"HTTP/1.1 {status} {reason}\r\n{head}\r\n".encode() + data, then="")


def raw(data: bytes, then: str = "close") -> Play:
    """Exactly these bytes, and then: "" (the connection goes on), "close", "reset" or "hang"."""

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(data)
        await writer.drain()
        if then == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif then == "hang":
            await reader.read(1)  # until the other side gives up
        return not then

    return play


def endless(head: bytes, chunk: bytes) -> Play:
    """Sends on and on until the client hangs up."""

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        writer.write(head)
        with contextlib.suppress(OSError):
            while not writer.transport.is_closing():
                writer.write(chunk)
                await writer.drain()
        return False

    return play


class FakeEnd:
    def __init__(self, script: tuple[Play, ...], rest: Play | None) -> None:
        self._script = deque(script)
        self._rest = rest
        self._connections: set[asyncio.Task[None]] = set()
        self.requests: list[Request] = []
        self.wrong: list[str] = []
        self.url = ""

    @property
    def request(self) -> Request:
        """The one request that came."""
        assert len(self.requests) == 1, self.requests
        return self.requests[0]

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                play = self._script.popleft() if self._script else self._rest
                if play is None:
                    self.wrong.append(f"unexpected {request.method} {request.target}")
                    return
                if not await play(reader, writer):
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self.wrong.append(f"half a request: {error.partial[:200]!r}")
            return None
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, target, version = first.split(" ")
        assert version == "HTTP/1.1", version
        headers: dict[str, list[str]] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            assert colon, f"no header: {line!r}"
            assert name == name.strip(), f"no header: {line!r}"
            headers.setdefault(name.lower(), []).append(value.strip())
        assert "transfer-encoding" not in headers, "a body of known size needs no chunks"
        length = int(headers.get("content-length", ["0"])[0])
        return Request(method, target, headers, await reader.readexactly(length))

    async def end(self) -> None:
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def verify(self) -> None:
        assert not self.wrong, self.wrong
        assert not self._script, f"{len(self._script)} answers were never asked for"


@asynccontextmanager
async def fake_end(
    *script: Play, rest: Play | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FakeEnd]:
    """`rest` answers whatever comes after the script; without it that fails the test."""
    end = FakeEnd(script, rest)
    server = await asyncio.start_server(end.connected, "127.0.0.1", 0, ssl=tls, limit=HEAD_MAX)
    port = server.sockets[0].getsockname()[1]
    end.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(PATIENCE):
            yield end
        end.verify()
    finally:
        server.close()
        await end.end()


@asynccontextmanager
async def opened(port: P) -> AsyncIterator[P]:
    """The port between its open() and its close()."""
    await port.open()
    try:
        yield port
    finally:
        await port.close()


def unused_url() -> str:
    """Nobody listens there."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


def self_signed() -> ssl.SSLContext:
    """A certificate of an authority that nobody trusts."""
    import trustme

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context
