"""Sends a reply over a real connection, broken in just the way it says."""

from __future__ import annotations

import socket
import struct

from aiohttp import web

from pipeline.clock import Clock
from pipeline.sim.reply import Break, Reply

#: The longest a hanging or dripping connection is kept.
HANG = 3600.0


async def send(request: web.Request, reply: Reply, clock: Clock) -> web.StreamResponse:
    match reply.broken:
        case None:
            return web.Response(
                body=reply.body, status=reply.status, headers=reply.headers, content_type="application/json"
            )
        case Break.HANG:
            await clock.sleep(HANG)
            return _reset(request)
        case Break.RESET:
            return _reset(request)
        case Break.TRUNCATE:
            response = await _begun(request, reply)
            await response.write(reply.body[: len(reply.body) // 2])
            return _closed(request, response)
        case Break.SLOW:
            return await _dripped(request, reply, clock)


async def _begun(request: web.Request, reply: Reply) -> web.StreamResponse:
    """Head sent, with the length of a body that will not come whole."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_type = "application/json"
    response.content_length = len(reply.body)
    await response.prepare(request)
    return response


async def _dripped(request: web.Request, reply: Reply, clock: Clock) -> web.StreamResponse:
    response = await _begun(request, reply)
    for place in range(min(len(reply.body), int(HANG))):
        await response.write(reply.body[place : place + 1])
        await clock.sleep(1)
    return _closed(request, response)


def _reset(request: web.Request) -> web.StreamResponse:
    """Linger 0 makes the kernel send RST where a plain close would send FIN."""
    transport = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    return web.Response(status=500)


def _closed(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return response
