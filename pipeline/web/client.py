"""One WebSocket client: what waits to be sent to it, and when it is given up."""

from __future__ import annotations

import asyncio
from collections import deque

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from pipeline.clock import Clock

OUTBOX_MAX = 256
SEND_TIMEOUT = 30.0
CLOSE_TIMEOUT = 2.0
COMMANDS_PER_SECOND = 20
#: Refusals, with no calm between them, before a client that floods is dropped.
REFUSALS_MAX = 100
CALM_AFTER = 10.0

log = structlog.get_logger()


class Outbox:
    """What must arrive waits in line, up to a limit; what is soon out of date is kept once, the latest."""

    def __init__(self) -> None:
        self._lasting: deque[bytes] = deque()
        self._stats: bytes | None = None
        self._tickets: bytes | None = None
        self._filled = asyncio.Event()

    def put(self, payload: bytes) -> bool:
        """False when full: the client has fallen too far behind to be told the truth."""
        if len(self._lasting) >= OUTBOX_MAX:
            return False
        self._lasting.append(payload)
        self._filled.set()
        return True

    def put_stats(self, payload: bytes) -> None:
        self._stats = payload
        self._filled.set()

    def put_tickets(self, payload: bytes) -> None:
        self._tickets = payload
        self._filled.set()

    async def take(self) -> bytes:
        while True:
            payload = self._next()
            if payload is not None:
                return payload
            self._filled.clear()
            await self._filled.wait()

    def _next(self) -> bytes | None:
        if self._lasting:
            return self._lasting.popleft()
        if self._stats is not None:
            stats, self._stats = self._stats, None
            return stats
        tickets, self._tickets = self._tickets, None
        return tickets


class FloodGuard:
    """So many messages in any one second of a client's, then refusals."""

    def __init__(self, clock: Clock, per_second: int = COMMANDS_PER_SECOND) -> None:
        self._clock = clock
        self._recent: deque[float] = deque(maxlen=per_second)
        self._refusals = 0
        self._refused_at = clock.monotonic()

    @property
    def hopeless(self) -> bool:
        return self._refusals >= REFUSALS_MAX

    def admits(self) -> bool:
        now = self._clock.monotonic()
        if len(self._recent) == self._recent.maxlen and now - self._recent[0] < 1.0:
            calm = now - self._refused_at > CALM_AFTER
            self._refusals = 1 if calm else self._refusals + 1
            self._refused_at = now
            return False
        self._recent.append(now)
        return True


class Client:
    def __init__(self, socket: web.WebSocketResponse, request: web.Request, clock: Clock) -> None:
        self.socket = socket
        self.who = f"panel {request.remote}"
        self.outbox = Outbox()
        self.flood = FloodGuard(clock)
        self._transport = request.transport
        self._over: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def send(self, payload: bytes) -> None:
        if not self.outbox.put(payload):
            self.drop(WSCloseCode.TRY_AGAIN_LATER)

    def drop(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    async def until_over(self) -> int:
        return await self._over

    async def write_on(self) -> None:
        """Sends what is in the outbox until the client is gone or stops reading."""
        try:
            while True:
                payload = await self.outbox.take()
                async with asyncio.timeout(SEND_TIMEOUT):
                    await self.socket.send_frame(payload, WSMsgType.TEXT)
        except TimeoutError:
            self.drop(WSCloseCode.TRY_AGAIN_LATER)
        except ConnectionError:
            self.drop(WSCloseCode.GOING_AWAY)

    async def hang_up(self, code: int) -> None:
        """A client that does not read never takes the close frame either: then the line is cut."""
        if code == WSCloseCode.TRY_AGAIN_LATER:
            log.warning("panel dropped: it does not keep up", client=self.who)
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self.socket.close(code=code)
        except (TimeoutError, ConnectionError):
            pass  # seen below: what it did not take is still in the buffer
        finally:
            # aiohttp may report a close though nothing was sent: the buffer would stay as long as the peer.
            if self._transport is not None and self._transport.get_write_buffer_size():
                self._transport.abort()
