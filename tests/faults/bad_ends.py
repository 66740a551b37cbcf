"""Ends with a fault of their own, named `module:Class`; for the rest they are the real ones."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Any, ClassVar

from pipeline.callback.http import HttpSink
from pipeline.clock import Clock
from pipeline.ports import Pulled
from pipeline.pull.http import HttpSource
from pipeline.query.http import HttpProvider
from pipeline.ticket import Answer, Receipt, Ticket

CONNECTIONS = 200
BLOCK_AT = 100
BLOCK_SECONDS = 3.0


class Fragile:
    """Every tenth call is a bug: mostly an exception, sometimes a cancellation that nobody asked for."""

    stumbles: ClassVar[dict[str, int]] = {}
    _calls = 0

    def __init__(self, config: Any, clock: Clock) -> None:
        super().__init__(config, clock, CONNECTIONS)  # type: ignore[call-arg]

    def _stumble(self) -> None:
        self._calls += 1
        if self._calls % 10:
            return
        name = type(self).__name__
        self.stumbles[name] = self.stumbles.get(name, 0) + 1
        if self._calls % 50:
            raise ZeroDivisionError("a bug")
        raise asyncio.CancelledError


class FragileSource(Fragile, HttpSource):
    async def pull(self, limit: int, timeout: float) -> Pulled:
        self._stumble()
        return await super().pull(limit, timeout)


class FragileProvider(Fragile, HttpProvider):
    async def query(self, ticket: Ticket, timeout: float) -> Answer:
        self._stumble()
        return await super().query(ticket, timeout)


class FragileSink(Fragile, HttpSink):
    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        self._stumble()
        return await super().deliver(ticket, answer, timeout)


class BlockingProvider(HttpProvider):
    """Blocks the whole loop, once, and says so on systemd's socket: what is heard in between is the proof."""

    def __init__(self, config: Any, clock: Clock) -> None:
        super().__init__(config, clock, CONNECTIONS)
        self._calls = 0

    async def query(self, ticket: Ticket, timeout: float) -> Answer:
        self._calls += 1
        if self._calls == BLOCK_AT:
            _tell("STATUS=blocked")
            time.sleep(BLOCK_SECONDS)  # noqa: ASYNC251 (the fault)
            _tell("STATUS=free")
        return await super().query(ticket, timeout)


def _tell(message: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(message.encode(), os.environ["NOTIFY_SOCKET"])
