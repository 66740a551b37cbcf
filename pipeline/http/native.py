"""Our own client: HTTP/1.1 over asyncio's protocols, no more of it than the daemon needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from pipeline.errors import Garbled, Unreachable
from pipeline.http.pool import Pool
from pipeline.http.reply import Response
from pipeline.http.request import request_bytes, target_of

T = TypeVar("T")


class HttpClient:
    """One per end: its own pool, as large as its slots, because a shared pool is a hidden queue."""

    def __init__(self, pool_size: int, max_body: int) -> None:
        self._pool_size = pool_size
        self._max_body = max_body
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = Pool(self._pool_size, self._max_body)

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()

    async def call(
        self,
        method: str,
        url: str,
        timeout: float,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        pool = self._pool
        assert pool is not None, "open() comes before call()"
        origin = target_of(url).origin
        request = request_bytes(method, url, params, headers, body)
        deadline = self._loop.time() + timeout
        if not pool.permit_now():
            await _in_time(pool.permit(), deadline, timeout)
        try:
            connection = pool.idle(origin)
            if connection is not None:
                try:
                    reply = await connection.exchange(method, request, deadline, timeout)
                except Garbled:
                    # Closed by the server while it was idle. Only a GET may be sent twice.
                    if method != "GET" or connection.heard:
                        raise
                else:
                    pool.release(origin, connection)
                    return reply
            connection = await _in_time(pool.connect(origin), deadline, timeout)
            reply = await connection.exchange(method, request, deadline, timeout)
            pool.release(origin, connection)
            return reply
        finally:
            pool.give_back()


async def _in_time(step: Awaitable[T], deadline: float, timeout: float) -> T:
    """What comes before sending. Not `TimedOut`: that says the request may have been served."""
    try:
        async with asyncio.timeout_at(deadline):
            return await step
    except TimeoutError:
        raise Unreachable(f"no connection within {timeout:.1f} s") from None
