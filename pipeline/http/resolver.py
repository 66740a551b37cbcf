"""Host names to addresses, asked once a minute and once for all who ask together."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

TTL = 60.0

#: family, type, protocol, canonical name, address: as getaddrinfo gives them
AddressInfo = tuple[int, int, int, str, Any]


class Resolver:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: dict[tuple[str, int], tuple[float, asyncio.Task[list[AddressInfo]]]] = {}

    async def addresses(self, host: str, port: int) -> list[AddressInfo]:
        key = (host, port)
        until, task = self._asked.get(key, (0.0, None))
        if task is None or self._loop.time() >= until:
            task = asyncio.create_task(self._ask(host, port))
            self._asked[key] = (self._loop.time() + TTL, task)
        try:
            # One caller that gives up must not take the answer from the others.
            return await asyncio.shield(task)
        except OSError:
            self.forget(host, port)
            raise

    async def _ask(self, host: str, port: int) -> list[AddressInfo]:
        return [*await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]

    def forget(self, host: str, port: int) -> None:
        """Addresses that lead nowhere are not worth keeping."""
        self._asked.pop((host, port), None)

    async def close(self) -> None:
        tasks = [task for _, task in self._asked.values()]
        self._asked.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
