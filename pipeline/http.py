"""The one module that knows the HTTP client.

Answers stay bytes. Bodies are bounded before and after decompression, every call has a deadline, and
what can go wrong comes out as the few `CallFailed` errors. Redirects are not followed, cookies not kept,
proxies not read from the environment: only configured hosts are ever contacted.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

import aiohttp

from pipeline.errors import BodyTooLarge, CallFailed, Garbled, TimedOut, Unreachable, Untrusted

CONNECT_TIMEOUT = 10.0
RETRY_AFTER_MAX = 60.0
#: Bodies up to this size come in one piece more often with a larger socket buffer.
READ_BUFFER = 256 * 1024


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """One per end: its own pool, as large as its slots, because a shared pool is a hidden queue."""

    def __init__(self, pool_size: int, max_body: int) -> None:
        self._pool_size = pool_size
        self._max_body = max_body
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._pool_size, ttl_dns_cache=60, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            skip_auto_headers=("User-Agent",),
            headers={"Accept-Encoding": "gzip", "User-Agent": "tidegate"},
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

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
        assert self._session is not None, "open() comes before call()"
        try:
            async with (
                asyncio.timeout(timeout),
                self._session.request(
                    method, url, params=params, headers=headers, data=body, allow_redirects=False
                ) as reply,
            ):
                return Response(reply.status, reply.headers, await self._read(reply))
        except (TimeoutError, aiohttp.ServerTimeoutError):
            raise TimedOut(f"no answer within {timeout:.1f} s") from None
        except aiohttp.ClientSSLError as error:
            raise Untrusted(f"TLS refused: {type(error).__name__}") from None
        except (aiohttp.ClientPayloadError, aiohttp.ClientResponseError) as error:
            raise Garbled(f"broken answer: {type(error).__name__}") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(_reason(error)) from None

    async def _read(self, reply: aiohttp.ClientResponse) -> bytes:
        declared = reply.content_length
        if declared is not None and declared > self._max_body:
            reply.close()
            raise BodyTooLarge(f"body of {declared} bytes is over {self._max_body}")
        encoding = reply.headers.get("Content-Encoding", "").lower()
        if encoding in ("", "identity"):
            return await self._read_plain(reply)
        if encoding in ("gzip", "deflate"):
            return await self._read_compressed(reply)
        raise Garbled("content encoding that was not asked for")

    async def _read_plain(self, reply: aiohttp.ClientResponse) -> bytes:
        chunks, size = [], 0
        while chunk := await reply.content.readany():
            size += len(chunk)
            self._check(size, reply)
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _read_compressed(self, reply: aiohttp.ClientResponse) -> bytes:
        inflater = zlib.decompressobj(wbits=47)  # gzip or zlib, told from the header
        out = bytearray()
        while chunk := await reply.content.readany():
            while chunk:
                out += _inflate(inflater, chunk, self._max_body + 1 - len(out))
                self._check(len(out), reply)
                chunk = inflater.unconsumed_tail
        if not inflater.eof:
            raise Garbled("compressed body is cut off")
        return bytes(out)

    def _check(self, size: int, reply: aiohttp.ClientResponse) -> None:
        if size > self._max_body:
            reply.close()
            raise BodyTooLarge(f"body is over {self._max_body} bytes")


def _inflate(inflater: zlib._Decompress, chunk: bytes, room: int) -> bytes:
    try:
        return inflater.decompress(chunk, max(1, room))
    except zlib.error:
        raise Garbled("compressed body is damaged") from None


def _reason(error: BaseException) -> str:
    """The kind of failure without the URL: a query string can hold a secret."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{type(error.os_error).__name__}: {error.os_error.strerror or 'cannot connect'}"
    if isinstance(error, OSError) and error.strerror:
        return f"{type(error).__name__}: {error.strerror}"
    return type(error).__name__


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Retry-After in seconds or as a date, clamped to what makes sense within a ticket's life."""
    raw = headers.get("Retry-After", "").strip()
    if not raw:
        return None
    try:
        seconds = float(raw)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(raw).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    if seconds != seconds:  # "nan" reads as a float
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_MAX)


__all__ = ["CallFailed", "HttpClient", "Response", "retry_after"]
