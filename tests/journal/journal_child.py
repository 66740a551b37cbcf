"""A process that journals until it is killed. Each line it prints names what is on disk by its own word."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from journal_makers import World, asked, ended, pulled

from pipeline.ticket import Answer, Verdict


async def main(path: Path) -> None:
    world = World(path)
    async with world.opened("answers", group_seconds=0.001) as journal:
        number = 0
        while True:
            done, open_still, waiting = (
                world.ticket(f"{kind}-{number}") for kind in ("done", "kept", "wait")
            )
            pulled(journal, done, open_still, waiting)
            for ticket in (done, open_still):
                asked(journal, ticket, Answer(Verdict.ANSWERED, ticket.trace_id.encode() * 1000))
            ended(journal, done)
            if number % 3:
                await journal.flush()
                print(number, flush=True)
            number += 1


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
