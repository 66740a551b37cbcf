"""How a test speaks with the feed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import aiohttp

from pipeline.web.feed import Feed


async def receive(socket, kind: str, within: float = 3.0):
    """The next message of this kind; others are passed over."""
    async with asyncio.timeout(within):
        while True:
            message = await socket.receive()
            assert message.type is aiohttp.WSMsgType.TEXT, message
            body = json.loads(message.data)
            if body["type"] == kind:
                return body


async def closing_code(socket, within: float = 3.0) -> int | None:
    async with asyncio.timeout(within):
        while (await socket.receive()).type is aiohttp.WSMsgType.TEXT:
            pass
    return socket.close_code


async def eventually(holds: Callable[[], bool], within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110 (what is awaited here has no event of its own)
            await asyncio.sleep(0.01)


async def command(socket, **fields):
    await socket.send_json({"type": "command", **fields})
    return await receive(socket, "ack")


def feed_of(daemon) -> Feed:
    """The feed that listens to this daemon's bus."""
    return next(listener.__self__ for listener in daemon.bus._listeners)
