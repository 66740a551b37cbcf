"""Ends as a user might write them, bugs included; named `module:Class`."""

from __future__ import annotations

from typing import Any, NoReturn

from pipeline.clock import Clock
from pipeline.ports import Pulled
from pipeline.ticket import Answer, Receipt, Ticket


class Broken:
    def __init__(self, config: Any, clock: Clock) -> None:
        self.config = config

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def _break(self) -> NoReturn:
        raise ZeroDivisionError("the user's bug")


class BrokenSource(Broken):
    async def pull(self, limit: int, timeout: float) -> Pulled:
        self._break()

    async def volume(self) -> int | None:
        self._break()


class UnopenableSource(BrokenSource):
    async def open(self) -> None:
        self._break()


class BrokenProvider(Broken):
    async def query(self, ticket: Ticket, timeout: float) -> Answer:
        self._break()

    async def credits(self) -> float | None:
        self._break()


class BrokenSink(Broken):
    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        header = ticket.token  # what a traceback with local variables would show
        assert header
        self._break()
