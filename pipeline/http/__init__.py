"""The one room that knows the HTTP client.

Answers stay bytes. Heads and bodies are bounded, bodies before and after decompression, every call has a
deadline, and what can go wrong comes out as the few `CallFailed` errors: `Unreachable` and `Untrusted` mean
that nothing was sent, the others that the request may have been served. Redirects are not followed, cookies
not kept, proxies not read from the environment: only configured hosts are ever contacted.

Ours is the default because it measures better in the finished daemon: 2.1 times the tickets/s of aiohttp's
with 100 KB answers, 1.6 times over TLS, 3.1 times with 1 KB (`bench pipeline --only daemon,fallback`). Both
pass the same tests.

    native.py      HttpClient, ours, the default         fallback.py   AiohttpClient, the same over aiohttp
    pool.py        permits, idle connections, connecting      resolver.py   host names to addresses
    connection.py  one connection, a response piece by piece  head.py, chunks.py   how a response is read
    request.py     a request as bytes                         reply.py   what a call brings back
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pipeline.errors import CallFailed
from pipeline.http.fallback import AiohttpClient
from pipeline.http.native import HttpClient
from pipeline.http.reply import Headers, Response, retry_after


class Client(Protocol):
    """What both clients are. One is opened on the loop that calls it."""

    def __init__(self, pool_size: int, max_body: int) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def call(
        self,
        method: str,
        url: str,
        timeout: float,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response: ...


#: By the names that `daemon.http_client` knows.
CLIENTS: Mapping[str, type[Client]] = {"native": HttpClient, "aiohttp": AiohttpClient}

__all__ = [
    "CLIENTS",
    "AiohttpClient",
    "CallFailed",
    "Client",
    "Headers",
    "HttpClient",
    "Response",
    "retry_after",
]
