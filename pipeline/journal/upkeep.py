"""The service that keeps the file small: prunes, and vacuums when asked to."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from pipeline.clock import Clock
from pipeline.config import JournalConfig
from pipeline.errors import TidegateError
from pipeline.journal.database import Database
from pipeline.journal.limits import Limits
from pipeline.journal.pruning import DAY, Pruned, PruneRule, prune, vacuum_step
from pipeline.journal.trouble import in_words, is_corrupt

log = structlog.get_logger()

#: Between two small deletions, for the rows that wait.
PAUSE = 0.02


async def _nobody(error: Exception, generation: int) -> None:
    pass


class Upkeep:
    def __init__(self, database: Database, config: JournalConfig, clock: Clock, limits: Limits) -> None:
        self.config = config
        self.first_answer = 1  # of this run
        self.on_damage: Callable[[Exception, int], Awaitable[None]] = _nobody
        self._database = database
        self._clock = clock
        self._limits = limits

    async def run(self) -> None:
        while True:
            await self._clock.sleep(self._limits.prune_every)
            generation = self._database.generation
            try:
                await self._database.write(self._database.miss)
                while (await self.prune_once()).more or await self.vacuum_once():
                    await self._clock.sleep(PAUSE)
            except (sqlite3.Error, OSError, TidegateError) as error:
                # Full, locked or gone: the writer meets the same and says so.
                log.warning("old rows could not be removed", error=in_words(error))
                if is_corrupt(error):
                    await self.on_damage(error, generation)

    async def prune_once(self) -> Pruned:
        now, limits = self._clock.now(), self._limits
        rule = PruneRule(
            tickets_before=now - self.config.keep_days * DAY,
            minutes_before=now - limits.history_days * DAY,
            rows=limits.prune_rows,
            size_max=limits.size_max,
            dead_before=now - DAY,
            first_answer=self.first_answer,
        )
        return await self._database.write(partial(prune, rule=rule))

    async def vacuum_once(self) -> bool:
        return await self._database.write(partial(vacuum_step, path=self._database.path))
