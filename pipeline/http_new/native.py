"""Our own client: HTTP/1.1 over asyncio's protocols, no more of it than the daemon needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from pipeline.errors import Garbled, Unreachable
from pipeline.http.connection import Connection
from pipeline.http.pool import Pool
from pipeline.http.reply import Response
from pipeline.http.request import Origin, request_bytes, target_of, with_params


class HttpClient:
    """One per end: its own pool, as large as its slots, because a shared pool is a hidden queue."""

    def __init__(self, pool_size: int, max_body: int) -> None:
        self._pool_size = pool_size
        self._max_body = max_body
        self._pool: Pool | None = None

    async def open(self) -> None:
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
        if params:
            url = with_params(url, params)
        origin = target_of(url).origin
        head, rest = request_bytes(method, url, headers, body)
        deadline = asyncio.get_running_loop().time() + timeout
        connection = pool.take(origin) or await self._wait(pool, origin, deadline, timeout)
        try:
            try:
                reply = await connection.exchange(method, head, rest, deadline, timeout)
            except Garbled:
                if method != "GET" or connection.heard or not connection.used:
                    raise
                ...
