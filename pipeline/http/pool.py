"""The connections of one client: at most so many, the latest used first, none kept for long.

A permit is the right to have a call in progress. It is waited for in order, and a permit that is given back
goes straight to the next in line, so nobody who comes later overtakes.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections import deque

from pipeline.errors import CallFailed, OutOfDescriptors, Unreachable, Untrusted
from pipeline.http.connection import NEXT_READ, Connection
from pipeline.http.request import Origin
from pipeline.http.resolver import AddressInfo, Resolver

CONNECT_TIMEOUT = 10.0
#: Node closes idle connections after 5 s; a request sent at that moment is lost. We go first.
IDLE_MAX = 4.0
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


class Pool:
    def __init__(self, size: int, max_body: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._size = size
        self._max_body = max_body
        self._scratch = memoryview(bytearray(NEXT_READ))
        self._resolver = Resolver(self._loop)
        self._tls: ssl.SSLContext | None = None
        self._permits = size
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: dict[Origin, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._connecting = 0
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    # -- permits -----------------------------------------------------------------------------------

    def permit_now(self) -> bool:
        if self._permits > 0 and not self._closed:
            self._permits -= 1
            return True
        return False

    async def permit(self) -> None:
        if self._closed:
            raise Unreachable("the client is closed")
        turn = self._loop.create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise

    def give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._permits += 1

    # -- connections -------------------------------------------------------------------------------

    def idle(self, origin: Origin) -> Connection | None:
        """The connection used last, if it is still good."""
        stack = self._idle.get(origin)
        oldest = self._loop.time() - IDLE_MAX
        while stack:
            connection = stack.pop()
            if not connection.usable:
                continue
            if connection.idle_since > oldest:
                return connection
            connection.abort()
        return None

    def release(self, origin: Origin, connection: Connection) -> None:
        if self._closed or not connection.is_quiet():
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.setdefault(origin, []).append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(IDLE_MAX, self._sweep)

    def _sweep(self) -> None:
        """Close what has been idle too long, and look again while anything is idle."""
        self._sweeper = None
        oldest = self._loop.time() - IDLE_MAX
        for origin, stack in list(self._idle.items()):
            kept = [c for c in stack if c.usable and c.idle_since > oldest]
            for connection in stack:
                if connection.usable and connection.idle_since <= oldest:
                    connection.abort()
            if kept:
                self._idle[origin] = kept
            else:
                del self._idle[origin]
        if self._idle:
            self._sweeper = self._loop.call_later(IDLE_MAX / 4, self._sweep)

    async def connect(self, origin: Origin) -> Connection:
        """A fresh connection. Whatever goes wrong here, nothing has been sent."""
        self._make_room()
        self._connecting += 1
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                connection = await self._connect(origin)
        except TimeoutError:
            raise Unreachable(f"cannot connect within {CONNECT_TIMEOUT:.0f} s") from None
        except ssl.SSLError as error:
            raise refused(error) from None
        except OSError as error:
            raise unreachable(error) from None
        finally:
            self._connecting -= 1
        self._open.add(connection)
        connection.closed.add_done_callback(lambda _: self._open.discard(connection))
        if self._closed:
            connection.abort()
            raise Unreachable("the client is closed")
        return connection

    def _make_room(self) -> None:
        """Idle connections to elsewhere count too."""
        if len(self._open) + self._connecting < self._size:
            return
        for stack in self._idle.values():
            while stack:
                connection = stack.pop(0)
                if connection.usable:
                    connection.abort()
                    return

    async def _connect(self, origin: Origin) -> Connection:
        error: OSError | None = None
        addresses = await self._resolver.addresses(origin.host, origin.port)
        for address in addresses:
            try:
                # An address that swallows packets must not use up the time of the next.
                async with asyncio.timeout(CONNECT_TIMEOUT / len(addresses)):
                    sock = await self._dial(address)
            except OSError as failed:
                error = failed
                if failed.errno in _NO_DESCRIPTORS:
                    raise  # the fault is ours, and the addresses are as good as before
            else:
                return await self._wrap(sock, origin)
        self._resolver.forget(origin.host, origin.port)
        raise error or OSError(errno.EADDRNOTAVAIL, "the host has no address")

    async def _dial(self, address: AddressInfo) -> socket.socket:
        family, kind, protocol, _, where = address
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(sock, where)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _wrap(self, sock: socket.socket, origin: Origin) -> Connection:
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        _, connection = await self._loop.create_connection(
            lambda: Connection(self._loop, self._scratch, self._max_body),
            sock=sock,
            ssl=self._tls if origin.tls else None,
            server_hostname=origin.host if origin.tls else None,
        )
        return connection

    async def close(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for turn in self._waiting:
            if not turn.done():
                turn.set_exception(Unreachable("the client is closed"))
        self._waiting.clear()
        self._idle.clear()
        gone = [connection.closed for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        await self._resolver.close()
        if gone:
            await asyncio.wait(gone)


def unreachable(error: OSError) -> Unreachable:
    """The kind of failure without the address: a URL can hold a secret."""
    if error.errno in _NO_DESCRIPTORS or not _can_open():
        return OutOfDescriptors()
    return Unreachable(f"{type(error).__name__}: {error.strerror or 'cannot connect'}")


def _can_open() -> bool:
    """Asked after any failure: a name that cannot be looked up for want of a descriptor is merely unknown."""
    try:
        socket.socket().close()
    except OSError:
        return False
    return True


def refused(error: ssl.SSLError) -> CallFailed:
    """A certificate we do not trust, or TLS that makes no sense; a hang-up is neither."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return Unreachable("hung up during the TLS handshake")
    detail = getattr(error, "verify_message", "")
    return Untrusted(f"TLS refused: {type(error).__name__}{': ' if detail else ''}{detail}")
