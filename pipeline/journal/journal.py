"""The journal as the lane and the daemon see it.

What the lane calls once or more for every ticket only appends to a list; `Writer` brings it to disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Collection
from datetime import date, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.clock import Clock
from pipeline.config import JournalConfig
from pipeline.errors import JournalFault, TidegateError
from pipeline.events import Bus, Event, Level, Step
from pipeline.journal import history, recovery, traces
from pipeline.journal.answers import Kept, read_answer
from pipeline.journal.database import Database, T, Work
from pipeline.journal.group import Group, ended_row, open_row
from pipeline.journal.history import LaneReport, Minute
from pipeline.journal.limits import Limits
from pipeline.journal.opening import Start
from pipeline.journal.recovery import Found, Paid, Recovered
from pipeline.journal.seal import Seal
from pipeline.journal.sql import Row, statement
from pipeline.journal.trouble import JOURNAL, ROW_FAULTS, is_corrupt
from pipeline.journal.upkeep import Upkeep
from pipeline.journal.writer import Writer
from pipeline.ticket import Answer, Ticket

MICROSECONDS = traces.MICROSECONDS
#: How long a reader waits for the newest rows before it tells what is on disk.
READ_PATIENCE = 1.0
#: How long a callback waits for its answer to be on disk. In trouble it goes out without.
SAVE_PATIENCE = 1.0
#: What a source of somebody's own may make of a ticket that is none.
BAD_TICKETS = (AttributeError, *ROW_FAULTS)


class _Live:
    """A ticket that has not ended: what its later rows refer to, and what a new file needs of it."""

    __slots__ = ("entry", "group", "kept", "lane", "number", "pulled", "steps")

    def __init__(self, number: int, lane: str, pulled: float, entry: str) -> None:
        self.number = number
        self.lane = lane
        self.pulled = pulled
        self.entry = entry
        self.kept: Kept | None = None
        self.group: Group | None = None  # where its newest steps are
        self.steps: list[Row] = []


class Journal:
    def __init__(
        self, path: Path, config: JournalConfig, clock: Clock, bus: Bus, limits: Limits | None = None
    ) -> None:
        self._config = config
        self.lost = 0  # rows that found no room in memory, or that SQLite could not take
        self.on_trouble: Callable[[str | None], None] = lambda trouble: None
        self._clock = clock
        self._bus = bus
        self._limits = limits or Limits()
        self._steps_max = self._limits.rows_max // 2
        self._database = Database(path, clock, self._limits, self._announce)
        self._writer = Writer(self._database, clock, self._limits)
        self._writer.on_trouble = self._troubled
        self._writer.on_new_file = self._write_again
        self._writer.on_lost = self._count_lost
        self.upkeep = Upkeep(self._database, config, clock, self._limits)
        self.upkeep.on_damage = self._writer.begin_anew
        self._start = Start(1, True, 1, 1)
        self._taken_up = False
        self._next_ticket = 1
        self._next_answer = 1
        self._last_at = 0
        self._live: dict[Ticket, _Live] = {}
        self._kept: dict[int, Kept] = {}  # by the answer's address: tickets that joined share one
        self._trouble_since = 0.0
        self._lost_said = 0
        self._services: list[asyncio.Task[None]] = []

    # -- life --------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises ConfigError for a newer schema or a second daemon, JournalFault if it cannot be opened."""
        self._start = await self._database.open()
        self._next_ticket = self._start.first_ticket
        self._next_answer = self._start.first_answer
        self.upkeep.first_answer = self._start.first_answer
        self._begin_run(self._writer.group)
        self._writer.counted()
        self._services = [
            asyncio.create_task(self._writer.run()),
            asyncio.create_task(self.upkeep.run()),
        ]

    async def close(self) -> None:
        """The mark of a clean end is made only if every row before it is on disk, and never by a start that
        came to nothing: what the sudden end before it left behind is still to be taken up."""
        if not self._services:
            return  # it was never opened: there is nowhere to write to, and nothing was promised
        flushed = await self._flushed_within(self._limits.close_seconds)
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        if not flushed:
            self._count_lost(self._writer.rows)
            self._say_lost()
        elif self._start.clean or self._taken_up:
            with contextlib.suppress(sqlite3.Error, OSError, TidegateError):
                await self._database.write(self._end_run)
        await self._database.close()

    def _begin_run(self, group: Group) -> None:
        group.runs.append((self._start.run, self._clock.now()))

    def _end_run(self, connection: sqlite3.Connection) -> None:
        connection.execute(statement("end_run"), (self._clock.now(), self._start.run))

    async def flush(self, hurry: bool = True) -> None:
        """Until every row so far is on disk; without `hurry` at the pace of the groups."""
        await self._writer.flush(hurry)

    async def _flushed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._writer.flush()
        except TimeoutError:
            return False
        return True

    @property
    def trouble(self) -> str | None:
        """Why rows cannot be written now; pulling should wait while it stands."""
        return self._writer.trouble

    @property
    def buffered(self) -> tuple[int, int]:
        """Rows and bytes of answers in memory on their way to disk."""
        return self._writer.rows, self._writer.bytes

    @property
    def _seal(self) -> Seal:
        seal = self._database.seal
        assert seal is not None
        return seal

    def reconfigure(self, config: JournalConfig) -> None:
        """`keep_days`, and tickets or answers, count from now on; off and on need a restart."""
        self._config = self.upkeep.config = config

    # -- a ticket's life: called by the stages, never waits ---------------------------------------

    def pulled(self, lane: str, ticket: Ticket, entry: str = "queued") -> None:
        """It was taken in: queued, joined, or joined to one that is answered already."""
        if self._has_room():
            number = self._next_ticket
            self._next_ticket = number + 1
            now = self._clock.now()
            try:
                row = open_row(number, lane, ticket, now, entry, self._seal)
            except BAD_TICKETS:
                self._count_lost(1)
                return
            self._live[ticket] = _Live(number, lane, now, entry)
            self._writer.group.tickets.append(row)
            self._writer.counted()
            if ticket.answer is not None:
                self.answered(ticket, ticket.answer)

    def asking(self, ticket: Ticket) -> None:
        """A query is about to be sent, the ticket's count of queries raised already."""
        self._step(ticket, "query", recovery.ASKING, ticket.queries)

    def answered(self, ticket: Ticket, answer: Answer) -> None:
        """Any answer to a query. A result is everybody's who joined the ticket."""
        verdict, attempt = answer.verdict, ticket.queries
        if not verdict.is_result:
            what = recovery.MAYBE_PAID if answer.maybe_paid else str(verdict)
            self._step(ticket, "query", what, attempt)
            return
        for one in (ticket, *ticket.followers):
            self._step(one, "query", str(verdict), attempt)
            if self._config.level == "answers":
                self.keep(one, answer)

    def calling(self, ticket: Ticket) -> None:
        """A callback is about to be sent."""
        self._step(ticket, "callback", recovery.CALLING, ticket.callbacks + 1)

    def step(self, ticket: Ticket, stage: str, what: str) -> None:
        """Anything else worth a line in the trace."""
        self._step(ticket, stage, what, ticket.callbacks if stage == "callback" else ticket.queries)

    def ended(self, lane: str, ticket: Ticket, stage: str) -> None:
        """It has its outcome. One that was never taken in is entered and ended with one row."""
        now, outcome = self._clock.now(), str(ticket.outcome)
        live = self._live.pop(ticket, None)
        if live is not None:
            # Always room for this: there are no more ends than entries, and a lost one would be work done
            # again after a restart.
            self._writer.group.ends.append((live.number, outcome, stage, now))
            self._writer.counted()
            self._release(live)
        elif self._has_room():
            try:
                row = ended_row(self._next_ticket, lane, ticket, now, outcome, stage)
            except BAD_TICKETS:
                self._count_lost(1)
                return
            self._next_ticket += 1
            self._writer.group.tickets.append(row)
            self._writer.counted()

    def _step(self, ticket: Ticket, stage: str, what: str, attempt: int) -> None:
        live = self._live.get(ticket)
        if live is None:
            return
        writer = self._writer
        if writer.rows >= self._steps_max:
            self.lost += 1
            return
        # Never the same microsecond twice: with the ticket it is the row's key.
        at = int(self._clock.now() * MICROSECONDS)
        if at <= self._last_at:
            at = self._last_at + 1
        self._last_at = at
        group = writer.group
        if live.group is not group:
            live.group = group
            live.steps = []
            group.trails.append((live.number, at, live.steps))
        live.steps.append((at, stage, what, attempt))
        writer.counted()

    def _has_room(self) -> bool:
        if self._writer.rows < self._limits.rows_max:
            return True
        self.lost += 1
        return False

    # -- answers that wait to be delivered ---------------------------------------------------------

    def keep(self, ticket: Ticket, answer: Answer) -> Kept | None:
        """Bring this answer to disk, at any level; None if there is no room on the way there now."""
        live = self._live.get(ticket)
        if live is None:
            return None
        if live.kept is not None:
            return live.kept
        kept = self._kept.get(id(answer))
        if kept is None or kept.answer is not answer:
            kept = self._new_kept(answer)
            if kept is None:
                return None
        self._claim(live, kept)
        self._writer.group.links.append((kept.number, live.number))
        self._writer.counted()
        return kept

    def _new_kept(self, answer: Answer) -> Kept | None:
        size = len(answer.body)
        if self._writer.bytes + size > self._limits.bytes_max or not self._has_room():
            return None
        kept = Kept(self._next_answer, answer, size, self._writer.group)
        self._next_answer += 1
        self._kept[kept.address] = kept
        self._writer.group.answers.append(kept)
        self._writer.counted(size)
        return kept

    def _claim(self, live: _Live, kept: Kept) -> None:
        live.kept = kept
        kept.claims += 1

    def saving(self, ticket: Ticket) -> Awaitable[None] | None:
        """At level `answers` a callback is tried when its answer is on disk, or the disk in trouble."""
        live = self._live.get(ticket) if self._config.level == "answers" else None
        if live is None or live.kept is None or live.kept.saved or self.trouble is not None:
            return None
        return self._saved_within(SAVE_PATIENCE, live.kept)

    async def _saved_within(self, seconds: float, kept: Kept) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await kept.wait_saved()

    async def fetch(self, kept: Kept) -> Answer | None:
        """From memory if it is there, else from disk; None if the disk has lost it. Raises JournalFault."""
        if kept.answer is not None:
            return kept.answer
        return await self._read(partial(read_answer, number=kept.number))

    def forget(self, ticket: Ticket) -> None:
        """This ticket needs its kept answer no more; `ended` does this too."""
        live = self._live.get(ticket)
        if live is not None:
            self._release(live)

    def _release(self, live: _Live) -> None:
        kept, live.kept = live.kept, None
        if kept is None:
            return
        kept.claims -= 1
        if not kept.claims:
            if self._kept.get(kept.address) is kept:
                del self._kept[kept.address]
            self._writer.group.forgotten.append(kept.number)
            self._writer.counted()

    # -- after a restart ---------------------------------------------------------------------------

    async def recover(
        self, lane: str, now: float, *, query_age: float, again_age: float, callback_age: float, keys_max: int
    ) -> Recovered:
        """Once for each lane, after `open` and before its first pull. `keys_max` = 2 × bucket_keys."""
        clean = self._start.clean
        work = partial(
            recovery.read,
            lane=lane,
            before=self._start.first_ticket,
            keys_max=keys_max,
            clean=clean,
            seal=self._seal,
        )
        try:
            reading = await self._read(work)
        except JournalFault:
            # Of a damaged file nothing can be taken up; a new one has been begun, and the lane can be.
            reading, clean = await self._read(work), False
        self._taken_up = True
        judged = recovery.judge(reading.found, now, recovery.Ages(query_age, again_age, callback_age))
        for found in judged.late:
            self._drop(found)
        for number, ticket, found in judged.alive:
            self._live[ticket] = _Live(number, lane, found.pulled, found.entry)
        for undelivered in judged.undelivered:
            self._claim(self._live[undelivered.ticket], undelivered.kept)
        for shared in judged.shared:
            self._writer.group.links.append(shared)
            self._writer.counted()
        return Recovered(
            clean,
            judged.undelivered,
            judged.unanswered,
            dropped=len(judged.late),
            dropped_paid=sum(found.paid in (Paid.MAYBE, Paid.YES) for found in judged.late),
            processed=reading.processed,
        )

    async def tell_unclaimed(self, lanes: Collection[str]) -> None:
        """Tickets of a lane that was renamed or removed: nobody takes them up, and nobody may overlook it."""
        waiting = await self._read(partial(recovery.open_by_lane, before=self._start.first_ticket))
        left = {lane: number for lane, number in waiting.items() if lane not in lanes}
        if left:
            self._announce({"what": "unclaimed", "why": ", ".join(left), "count": sum(left.values())})

    def _drop(self, found: Found) -> None:
        row = (found.number, recovery.RESTART, recovery.RESTART, self._clock.now())
        self._writer.group.ends.append(row)
        self._writer.counted()

    # -- reading -----------------------------------------------------------------------------------

    async def _read(self, work: Work[T]) -> T:
        """Damage that a reader meets first leads to a new file too."""
        generation = self._database.generation
        try:
            return await self._database.read(work)
        except JournalFault as fault:
            cause = fault.__cause__
            if cause is not None and is_corrupt(cause):
                await self._writer.begin_anew(cause, generation)
            raise

    async def trace(self, trace_id: str) -> list[Step]:
        """Each step of each ticket with this trace, oldest first. Raises JournalFault."""
        await self._flushed_within(READ_PATIENCE)
        return await self._read(partial(traces.by_trace, trace_id=trace_id))

    async def trace_item(self, shop_id: str, item_id: str) -> list[Step]:
        await self._flushed_within(READ_PATIENCE)
        return await self._read(partial(traces.by_item, shop_id=shop_id, item_id=item_id))

    def minute(self, lane: str, at: float, data: Minute) -> None:
        """What one minute, or a part of it, was like: see `history`."""
        if self._has_room():
            self._writer.group.minutes.append(history.minute_row(lane, at, data))
            self._writer.counted()

    async def history(self, lane: str, since: float, until: float, step: int = 60) -> list[dict[str, Any]]:
        work = partial(history.read_history, lane=lane, since=since, until=until, step=step)
        return await self._read(work)

    async def report(self, day: date, zone: tzinfo) -> dict[str, LaneReport]:
        """By lane, for the day as the zone's clocks have it."""
        began = datetime(day.year, day.month, day.day, tzinfo=zone)
        ended = began + timedelta(days=1)
        work = partial(history.read_report, since=began.timestamp(), until=ended.timestamp())
        return await self._read(work)

    def _write_again(self, group: Group) -> None:
        """A new file knows nothing of what is under way."""
        self._begin_run(group)
        for ticket, live in self._live.items():
            row = open_row(live.number, live.lane, ticket, live.pulled, live.entry, self._seal)
            group.tickets.append(row)
            kept = live.kept
            if kept is not None and kept.answer is not None:
                kept.group = group
                group.answers.append(kept)
                group.links.append((kept.number, live.number))

    # -- saying it ---------------------------------------------------------------------------------

    def _troubled(self, trouble: str | None) -> None:
        now = self._clock.monotonic()
        if trouble is None:
            lasted = round(now - self._trouble_since, 1)
            self._trouble_since = 0.0
            self._announce({"what": "recovered", "lasted": lasted}, Level.INFO)
            self._say_lost()
        else:
            self._trouble_since = self._trouble_since or now
            self._announce({"what": "trouble", "why": trouble})
        self.on_trouble(trouble)

    def _count_lost(self, count: int) -> None:
        self.lost += count
        if self.trouble is None:
            self._say_lost()

    def _say_lost(self) -> None:
        if self.lost > self._lost_said:
            self._announce({"what": "rows_lost", "count": self.lost - self._lost_said})
            self._lost_said = self.lost

    def _announce(self, detail: dict[str, Any], level: Level = Level.ERROR) -> None:
        self._bus.publish(Event(self._clock.now(), "", JOURNAL, level, "", detail))
