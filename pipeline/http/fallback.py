"""The same client over aiohttp, for when ours is suspected of something (`daemon.http_client`)."""

from __future__ import annotations

import asyncio
import io
import ssl
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import aiohttp

from pipeline.errors import BodyTooLarge, CallFailed, Garbled, TimedOut, Unreachable
from pipeline.http.pool import CONNECT_TIMEOUT, IDLE_MAX, refused, unreachable
from pipeline.http.reply import Response, decoded
from pipeline.http.request import COMMON, header_lines

READ_BUFFER = 256 * 1024
#: aiohttp warns of larger bytes and wants to write them piece by piece.
WHOLE_MAX = 1 << 20


class AiohttpClient:
    def __init__(self, pool_size: int, max_body: int) -> None:
        self._pool_size = pool_size
        self._max_body = max_body
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._pool_size,
                ttl_dns_cache=60,
                keepalive_timeout=IDLE_MAX,
                # aiohttp's own is made when it is imported, before SSL_CERT_FILE may have been set.
                ssl=ssl.create_default_context(),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            headers=COMMON,
            trace_configs=[trace],
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
        session = self._session
        assert session is not None, "open() comes before call()"
        header_lines(headers or {})
        progress = {"sent": False}
        try:
            async with (
                asyncio.timeout(timeout),
                session.request(
                    method,
                    url,
                    params=params,
                    headers=headers,
                    data=io.BytesIO(body) if body is not None and len(body) > WHOLE_MAX else body,
                    allow_redirects=False,
                    trace_request_ctx=progress,
                ) as reply,
            ):
                return await self._read(reply)
        except (TimeoutError, aiohttp.ServerTimeoutError):
            if progress["sent"]:
                raise TimedOut(f"no answer within {timeout:.1f} s") from None
            raise Unreachable(f"no connection within {timeout:.1f} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, progress["sent"]) from None

    async def _read(self, reply: aiohttp.ClientResponse) -> Response:
        declared = reply.content_length
        if declared is not None and declared > self._max_body and reply.method != "HEAD":
            reply.close()
            raise BodyTooLarge(f"body of {declared} bytes is over {self._max_body}")
        pieces, size = [], 0
        while piece := await reply.content.readany():
            size += len(piece)
            if size > self._max_body:
                reply.close()
                raise BodyTooLarge(f"body is over {self._max_body} bytes")
            pieces.append(piece)
        body = decoded(b"".join(pieces), reply.headers.get("Content-Encoding", ""), self._max_body)
        return Response(reply.status, reply.headers, body)


async def _note_sent(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: Any) -> None:
    context.trace_request_ctx["sent"] = True


def _failure(error: Exception, sent: bool) -> CallFailed:
    """Before the request went out nothing was paid; after that, nobody knows."""
    cause: BaseException = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(cause, ssl.SSLError) and not sent:
        return refused(cause)
    if sent or isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError):
        return Garbled(f"broken answer: {type(error).__name__}")
    if isinstance(cause, OSError):
        return unreachable(cause)
    return Unreachable(type(error).__name__)
