"""What the daemon leaves to the garbage collector, which it asks to come seldom."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from pipeline.journal.answers import Kept
from pipeline.journal.group import Group
from pipeline.ticket import Answer, Ticket
from tests.faults.faulty_world import stage


@contextmanager
def collected() -> Iterator[list[object]]:
    """Everything that only the collector could have freed."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    found: list[object] = []
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_tickets_leave_no_cycles_whatever_becomes_of_them() -> None:
    """100 KB each would wait for a collector that comes after 20,000 objects."""
    every = {"error": 0.03, "reset": 0.03, "garbage": 0.03, "truncate": 0.03}
    async with stage(
        query=every, callback=every, rate=200, processing_share=0.2, duplicate_share=0.1
    ) as play:
        await play.delivers(20)
        with collected() as found:
            await play.delivers(300)
        await play.all_ended()
    ours = Counter(type(one).__name__ for one in found if isinstance(one, Answer | Group | Kept | Ticket))
    assert ours == {}
