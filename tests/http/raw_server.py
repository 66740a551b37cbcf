"""A server that sends exactly the bytes a test wants, reads requests strictly and counts connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from pipeline.http import Client

#: Far longer than anything here takes: what needs it has hung.
PATIENCE = 20.0


class Wire:
    """One accepted connection, as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self) -> bytes:
        """The next request's head. A client that hangs up instead raises IncompleteReadError."""
        return await self._reader.readuntil(b"\r\n\r\n")

    async def request(self) -> bytes:
        head = await self.head()
        lines = head.lower().split(b"\r\n")
        lengths = [int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")]
        return head + await self._reader.readexactly(sum(lengths))

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def reset(self) -> None:
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def hang_up(self) -> None:
        self._writer.write_eof()

    async def gone(self) -> None:
        """Until the client has closed, whatever it still sends."""
        with contextlib.suppress(OSError):
            while await self._reader.read(1 << 16):
                pass


Play = Callable[[Wire], Awaitable[None]]
Open = Callable[..., Awaitable[Client]]


class RawServer:
    def __init__(self, play: Play) -> None:
        self._play = play
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.accepted = 0
        self.open = 0
        self.peak = 0
        self.url = ""

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._count(1)
        try:
            await self._play(Wire(reader, writer))
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away, which many tests are about
        finally:
            writer.close()
            await self._count(-1)

    async def _count(self, change: int) -> None:
        async with self._changed:
            self.open += change
            self.accepted += change > 0
            self.peak = max(self.peak, self.open)
            self._changed.notify_all()

    async def settled(self, number: int) -> None:
        """Until so many connections are open."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.open == number)

    async def end(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def raw_server(play: Play, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    server = RawServer(play)
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/path"
    try:
        async with asyncio.timeout(PATIENCE):
            yield server
    finally:
        listening.close()
        await server.end()


def answers(*responses: bytes) -> Play:
    """Each request gets the next of these, then the connection stays until the client closes it."""

    async def play(wire: Wire) -> None:
        for response in responses:
            await wire.request()
            await wire.send(response)
        await wire.gone()

    return play


def always(response: bytes) -> Play:
    async def play(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.send(response)

    return play


def once(data: bytes, then: str = "close") -> Play:
    """One request, these bytes, and then "close", "reset" or "hang"."""

    async def play(wire: Wire) -> None:
        await wire.request()
        await wire.send(data)
        if then == "reset":
            wire.reset()
        elif then == "hang":
            await wire.gone()

    return play


def sized(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunked(*pieces: bytes, headers: str = "", trailers: bytes = b"") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{headers}\r\n".encode()
    return head + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n" + trailers + b"\r\n"
