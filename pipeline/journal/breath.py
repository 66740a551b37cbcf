"""Lets the database's thread have the interpreter while the event loop is saturated.

A loop without a moment's rest gives the interpreter away in every system call and takes it back within a
microsecond, long before a waiting thread has woken up; each release also starts that thread's 5 ms of
patience anew. A group of rows needs the interpreter twice, and could wait long for it. A pause of a tenth of
a millisecond is enough for the other thread to get in. A loop with time to spare never gets here: its
groups are written before the first pause is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

PAUSE = 0.0001
FIRST_AFTER = 0.01
EVERY = 0.002
#: More pauses than a group can need: what keeps it now is the disk.
ENOUGH = 20
SELDOM = 0.05

_nothing = Event()


class _Breaths:
    def __init__(self) -> None:
        self._taken = 0
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(FIRST_AFTER, self._take)

    def _take(self) -> None:
        _nothing.wait(PAUSE)
        self._taken += 1
        self._timer = self._loop.call_later(EVERY if self._taken < ENOUGH else SELDOM, self._take)

    def stop(self) -> None:
        self._timer.cancel()


@contextmanager
def breathing() -> Iterator[None]:
    breaths = _Breaths()
    try:
        yield
    finally:
        breaths.stop()
