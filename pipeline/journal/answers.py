"""Answers on disk: those that wait to be delivered, so that a crash or a full memory costs none of them."""

from __future__ import annotations

import sqlite3
import zlib
from typing import TYPE_CHECKING

from pipeline.journal.sql import Row, statement
from pipeline.ticket import Answer, Verdict

if TYPE_CHECKING:
    from pipeline.journal.group import Group

#: A product page shrinks to a fifth at level 1; level 6 takes three times as long for a tenth less.
ZLIB_LEVEL = 1


class Kept:
    """One answer's place on disk. It is in memory too until its holder lets go of it."""

    __slots__ = ("address", "answer", "claims", "group", "number", "size")

    def __init__(self, number: int, answer: Answer | None, size: int, group: Group | None) -> None:
        self.number = number
        self.answer = answer
        self.address = id(answer)
        self.size = size  # of the body in memory
        self.claims = 0  # tickets that still need it
        self.group = group

    @property
    def saved(self) -> bool:
        return self.group is None or self.group.written

    async def wait_saved(self) -> None:
        if self.group is not None:
            await self.group.done.wait()

    def let_go(self) -> bool:
        """Give the memory back; False while the disk does not have it yet."""
        if self.saved:
            self.answer = None
        return self.saved


def packed(kept: list[Kept]) -> tuple[list[Row], bytes]:
    """A row for each that somebody still needs, and their bodies, one behind the other."""
    rows: list[Row] = []
    bodies: list[bytes] = []
    start = 0
    for one in kept:
        answer = one.answer
        if answer is None or not one.claims:
            continue
        body = zlib.compress(answer.body, ZLIB_LEVEL)
        rows.append((one.number, str(answer.verdict), answer.detail, len(answer.body), start, len(body)))
        bodies.append(body)
        start += len(body)
    return rows, b"".join(bodies)


def read_answer(connection: sqlite3.Connection, number: int) -> Answer | None:
    row = connection.execute(statement("read_answer"), (number,)).fetchone()
    if row is None:
        return None
    verdict, detail, packed = row
    return Answer(Verdict(verdict), zlib.decompress(packed), detail)
