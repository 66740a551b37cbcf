"""A TCP proxy on 127.0.0.1 that breaks what passes through it, each direction in its own way.

`proxy.up` is what goes to the server, `proxy.down` what comes back. Both can be changed at any moment and
hold for connections that are open too; what is counted in bytes counts from the change on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum

READ = 1 << 16
HEAD_END = b"\r\n\r\n"


class Door(StrEnum):
    """What happens to a new connection."""

    OPEN = "open"
    RESET = "reset"  # accepted and reset at once
    HALF_OPEN = "half_open"  # accepted, never read, never answered


@dataclass(frozen=True, slots=True)
class Faults:
    """Of one direction. Frozen: a change is a new object, and that is how a connection sees it."""

    latency: float = 0.0  # seconds before each piece is passed on
    bandwidth: float = 0.0  # bytes a second; 0 = as fast as it goes
    slice_to: int = 0  # bytes a packet; 0 = as they come
    drip: float = 0.0  # seconds between single bytes: 1 is slow-loris
    swallow: bool = False  # a black hole: taken, and never passed on
    reset_after: int | None = None  # RST once so many bytes have passed
    close_after: int | None = None  # FIN once so many bytes have passed
    in_body: bool = False  # those bytes are counted from the end of the next HTTP head
    times: int = 0  # so many resets and closes in all, then none; 0 = no limit

    @property
    def cut_after(self) -> int | None:
        return self.reset_after if self.reset_after is not None else self.close_after


SOUND = Faults()


class FaultProxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._connections: dict[asyncio.Task[None], list[asyncio.StreamWriter]] = {}
        self._up = self._down = SOUND
        self._changed = asyncio.Condition()
        self._left = 0
        self.door = Door.OPEN
        self.tls: ssl.SSLContext | None = None
        self.port = 0
        #: accepted, refused, half_open, resets, closes, and bytes by direction: up, down, swallowed
        self.counts: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def up(self) -> Faults:
        return self._up

    @up.setter
    def up(self, faults: Faults) -> None:
        self._up = faults
        self._left = faults.times

    @property
    def down(self) -> Faults:
        return self._down

    @down.setter
    def down(self, faults: Faults) -> None:
        self._down = faults
        self._left = faults.times

    def heal(self) -> None:
        self.door = Door.OPEN
        self.up = self.down = SOUND

    def reset_all(self) -> None:
        """Every connection that is open, now."""
        for writers in self._connections.values():
            for writer in writers:
                _reset(writer)

    async def until(self, holds: Callable[[Counter[str]], object], within: float = 30.0) -> None:
        """Until the counts are so."""
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: holds(self.counts))

    async def _count(self, name: str, by: int = 1) -> None:
        async with self._changed:
            self.counts[name] += by
            self._changed.notify_all()

    # -- connections -------------------------------------------------------------------------------

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._connections[task] = [writer]
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._count("accepted")
        try:
            if self.door is Door.RESET:
                _reset(writer)
                await self._count("refused")
            elif self.door is Door.HALF_OPEN:
                await self._count("half_open")
                await writer.wait_closed()
            else:
                await self._pass_on(reader, writer)
        except OSError:
            pass  # either end may go whenever it likes
        finally:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        task = asyncio.current_task()
        assert task is not None
        self._connections[task].append(far_writer)
        pumps = [
            asyncio.create_task(self._pump("up", reader, far_writer, writer)),
            asyncio.create_task(self._pump("down", far_reader, writer, far_writer)),
        ]
        try:
            # HTTP knows no half-closed connections: the end of either direction is the end.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            far_writer.close()

    async def _pump(
        self,
        direction: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:
        known: Faults | None = None
        passed: int | None = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(READ):
                faults: Faults = self._up if direction == "up" else self._down
                if faults is not known:
                    known, passed = faults, None if faults.in_body else 0
                if faults.swallow:
                    await self._count("swallowed", len(data))
                    continue
                room, passed = _room(faults, data, passed)
                if room is not None and not (faults.times and not self._left):
                    await self._send(direction, faults, data[:room], writer)
                    self._left -= bool(faults.times)
                    await self._cut(faults, writer, back)
                    return
                await self._send(direction, faults, data, writer)

    async def _send(self, direction: str, faults: Faults, data: bytes, writer: asyncio.StreamWriter) -> None:
        if faults.latency:
            await asyncio.sleep(faults.latency)
        size = 1 if faults.drip else faults.slice_to or len(data) or 1
        if faults.bandwidth:
            size = min(size, max(1, int(faults.bandwidth / 20)))
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            pause = faults.drip + (len(piece) / faults.bandwidth if faults.bandwidth else 0.0)
            if pause or faults.slice_to:
                await asyncio.sleep(pause)
            writer.write(piece)
            await writer.drain()
            await self._count(direction, len(piece))

    async def _cut(self, faults: Faults, writer: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
        if faults.reset_after is not None:
            _reset(writer)
            _reset(back)
            await self._count("resets")
        else:
            writer.close()
            await self._count("closes")

    async def end(self) -> None:
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


def _room(faults: Faults, data: bytes, passed: int | None) -> tuple[int | None, int | None]:
    """How much of the data may still pass before the cut (None = all of it), and what has passed then."""
    limit = faults.cut_after
    if limit is None:
        return None, passed
    begin = 0
    if passed is None:
        end = data.find(HEAD_END)
        if end < 0:
            return None, None
        begin, passed = end + len(HEAD_END), 0
    room = begin + limit - passed
    if len(data) >= room:
        return room, passed
    return None, passed + len(data) - begin


def _reset(writer: asyncio.StreamWriter) -> None:
    """Linger 0 makes the kernel send RST where a plain close would send FIN."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def fault_proxy(
    port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[FaultProxy]:
    """Between whoever connects to `proxy.port` and `host:port`; `tls` ends here, behind it is plain text."""
    proxy = FaultProxy(host, port)
    proxy.tls = tls
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0, ssl=tls, backlog=1024)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
