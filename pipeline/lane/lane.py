"""One line of stages wired together: pull → queue → query → callback. Knows no HTTP and no SQL."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import structlog

from pipeline.callback.stage import CallbackStage
from pipeline.clock import Clock
from pipeline.config import LaneConfig
from pipeline.control.breaker import Mode
from pipeline.control.controller import Controller, Snapshot
from pipeline.control.drop_rate import Level
from pipeline.control.gate import Reason
from pipeline.control.limits import limits
from pipeline.control.pace import STAGES
from pipeline.events import Bus, Event, Kind, Step, StepListener
from pipeline.events import Level as EventLevel
from pipeline.journal.journal import Journal
from pipeline.journal.silent import SilentJournal
from pipeline.lane.recovery import Recovery
from pipeline.minutes import Minutes
from pipeline.money import Money
from pipeline.ports import Provider, Sink, Source
from pipeline.pull.stage import PullStage
from pipeline.query.stage import QueryStage
from pipeline.queue.ticket_queue import TicketQueue
from pipeline.ticket import DROPPED, Answer, Ticket, Verdict

log = structlog.get_logger()

TICK_EVERY = 0.25
SIDE_CALLS_EVERY = 10.0
STATS_LOG_EVERY = 10.0
MINUTE = 60.0
#: How often the running minute is written anew: a kill costs the report no more than that.
MINUTE_TOLD_EVERY = 10.0
STEPS_KEPT = 50
#: None of these is a reason against the one ticket of a probe; a full queue has room for one more.
PROBE_PASSES = {Reason.CREDIT, Reason.AUTH, Reason.BACKPRESSURE}

RawStep = tuple[float, str, Ticket, str, int]


class Lane:
    def __init__(
        self,
        name: str,
        config: LaneConfig,
        source: Source,
        provider: Provider,
        sink: Sink,
        clock: Clock,
        bus: Bus,
        journal: Journal | None = None,
    ) -> None:
        self.name = name
        self._journal = journal or SilentJournal()
        self.config = config
        self._clock = clock
        self._ports = (source, provider, sink)
        self._source, self._provider = source, provider
        self.controller = Controller(name, config, clock, bus)
        self.queue = TicketQueue(config.queue, clock)
        self.callback = CallbackStage(
            config, sink, self.queue, self.controller, clock, self._step, self._journal
        )
        self.query = QueryStage(
            config, provider, self.queue, self.controller, clock, self._step, self._answered, self._journal
        )
        self.query.pool.between = self.callback.carry_on
        self.pull = PullStage(
            config, source, self.queue, self.controller, clock, self._step, self.callback.submit_one
        )
        self._recovery = Recovery(
            name, config, self.controller, self.queue, self.pull, self.callback, self._journal, clock
        )
        self.money = Money(config.query.price, self.controller.ledger)
        self._pools = (self.pull.pool, self.query.pool, self.callback.pool)
        self._minutes = Minutes()
        self._minute_began = clock.now()
        bus.subscribe(self._count_event)
        clock.on_adopt(self._redate)
        self._listeners: list[StepListener] = []
        self._steps = {stage: deque[RawStep](maxlen=STEPS_KEPT) for stage in STAGES}
        self._services: list[asyncio.Task[None]] = []
        self._tick_due = False
        self._ticked = clock.monotonic()
        self._lag = 0.0
        self.draining = False

    # -- life --------------------------------------------------------------------------------------

    async def open(self) -> None:
        for port in self._ports:
            await port.open()
        recovered = await self._recovery.run_once()
        for pool in self._pools:
            pool.start()
        every: tuple[tuple[float, Callable[[], Awaitable[object]]], ...] = (
            (TICK_EVERY, self._tick_once),
            (self.config.queue.clean_every, self.clean_once),
            (self.config.query.probe_interval, self.probe_once),
            (SIDE_CALLS_EVERY, self.side_calls_once),
            (STATS_LOG_EVERY, self._log_once),
            (MINUTE_TOLD_EVERY, self._minute_once),
        )
        self._services = [asyncio.create_task(self._repeat(*pair)) for pair in every]
        self._services.append(asyncio.create_task(self.side_calls_once()))
        level = EventLevel.WARNING if recovered.get("unclean") else EventLevel.INFO
        self.controller.emit(Kind.STARTED, level, "", recovered)

    def journal_trouble(self, trouble: str | None) -> None:
        """Nothing new is taken in that could not be written down; what is under way goes on."""
        if trouble is None:
            self.controller.release(("pull",), Reason.JOURNAL, "journal")
        else:
            self.controller.hold(("pull",), Reason.JOURNAL, "journal", trouble, "by itself")

    def begin_drain(self, by: str) -> None:
        self.draining = True
        self.controller.hold(("pull",), Reason.DRAINING, by, "shutting down", "never")
        self.controller.emit(Kind.DRAINING, EventLevel.INFO, "", {"in_flight": self.in_flight()})

    async def drain(self, timeout: float) -> bool:
        """Waits for calls under way and answers not yet delivered; True if all went out."""
        try:
            async with asyncio.timeout(timeout):
                await self.pull.pool.drained()
                while self._unfinished():
                    await self._clock.sleep(0.05)
        except TimeoutError:
            return False
        return True

    def _unfinished(self) -> int:
        """Calls under way, and whatever waits behind an open gate; a held stage is not waited for."""
        waiting = {"query": len(self.queue.line), "callback": len(self.callback.line)}
        stages = self.controller.stages
        callable_now = sum(number for name, number in waiting.items() if stages[name].gate.is_open)
        return self.query.pool.working + self.callback.pool.working + callable_now

    async def close(self) -> None:
        if self._services:  # else it was never opened, and there is no work to end or to tell of
            left = await self._end_work()
            self.controller.emit(Kind.STOPPED, EventLevel.INFO, "", {"in_flight": left})
        for port in self._ports:
            await port.close()

    async def _end_work(self) -> int:
        """How many tickets are left for the next run."""
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        await self.pull.pool.close()
        left = self.in_flight()
        await self.callback.keep_rest()
        for pool in (self.query.pool, self.callback.pool):
            await pool.close()
        self.queue.line.close()
        self.callback.line.close()
        await self._minute_once()
        return left

    async def _repeat(self, every: float, run_once: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self._clock.sleep(every)
            try:
                await run_once()
            except Exception as error:
                self.controller.crashed(run_once.__name__, error)

    # -- periodic services -------------------------------------------------------------------------

    async def _tick_once(self) -> None:
        now = self._clock.monotonic()
        self._lag = max(0.0, now - self._ticked - TICK_EVERY)
        self.tick()
        held = [str(reason) for stage in self.controller.stages.values() for reason in stage.gate.holds]
        if held:
            self._minutes.held(held, now - self._ticked)
        self._ticked = now
        self._lag = 0.0  # judged once; a tick in between has no news of it

    def tick(self) -> None:
        self._tick_due = False
        self.controller.tick(self.snapshot())
        for pool in self._pools:
            pool.replace_hung()
        self.callback.spill()
        self.pull.wake_if_room()

    def poke(self) -> None:
        """Something that cannot wait for the next tick."""
        if not self._tick_due:
            self._tick_due = True
            asyncio.get_running_loop().call_soon(self.tick)

    async def clean_once(self) -> int:
        return self.query.clean() + self.callback.clean()

    async def probe_once(self) -> bool:
        """Credit or auth is out: try with one ticket, pulled on purpose if none waits."""
        controller = self.controller
        if not (controller.held(Reason.CREDIT) or controller.held(Reason.AUTH)):
            return False
        through = None if controller.refused_by_upstream else await self.query.probe()
        if through is None:
            through = await self._probe_by_pulling()
        self.callback.pool.wake()  # it was no slot that asked, so nobody carries the answer on
        if through:
            for reason in (Reason.CREDIT, Reason.AUTH):
                controller.release(STAGES, reason, "probe")
        return bool(through)

    async def _probe_by_pulling(self) -> bool | None:
        if self.controller.pull_gate.holds.keys() - PROBE_PASSES:
            return False  # an operator, the journal or the end has another reason to take nothing in
        pulled = await self.pull.call(1)
        if pulled is None or pulled.verdict is not Verdict.ANSWERED:
            return False
        self.pull.take_in(pulled, 1)
        by_upstream = self.controller.refused_by_upstream
        through = await self.query.probe()
        return True if through is None and by_upstream else through

    async def side_calls_once(self) -> None:
        volume, credits = await asyncio.gather(self._source.volume(), self._provider.credits())
        self.money.see(volume, credits, self._clock.monotonic())

    async def _minute_once(self) -> None:
        self._tell_minute(is_over=self._clock.now() - self._minute_began > MINUTE - MINUTE_TOLD_EVERY / 2)

    def _tell_minute(self, is_over: bool) -> None:
        """The row is known by the moment when its minute began: each takes the place of the one before."""
        status = self.status()
        self._journal.minute(self.name, self._minute_began, self._minutes.so_far(status))
        if is_over:
            self._minutes.begin_anew(status)
            self._minute_began = self._clock.now()

    def _count_event(self, event: Event) -> None:
        if event.lane == self.name:
            self._minutes.happened(str(event.kind))

    async def _log_once(self) -> None:
        status = self.status()
        counters = status["counters"]
        log.info(
            "statistics",
            lane=self.name,
            state=status["state"],
            queue=status["queue"]["pending"] + status["queue"]["delayed"],
            pulled=counters["pulled"],
            delivered=counters["delivered"],
            dropped=self.controller.ledger.dropped,
            per_minute=status["stages"]["callback"]["rate_per_min"],
            balanced=status["conservation"]["balanced"],
        )

    # -- tickets -----------------------------------------------------------------------------------

    def _answered(self, ticket: Ticket, answer: Answer) -> None:
        self.callback.submit(ticket, answer)
        backlog = self.callback.backlog
        if self.controller.backlog_is_due(backlog.count, backlog.bytes):
            self.tick()  # at once: even until the loop's next turn there would be more paid answers
        self.pull.wake_if_room()

    def _step(self, stage: str, ticket: Ticket, what: str) -> None:
        # Three a ticket, and nearly all are forgotten unseen: a tuple costs a fifth of a Step.
        raw = (
            self._clock.now(),
            stage,
            ticket,
            what,
            ticket.callbacks if stage == "callback" else ticket.queries,
        )
        self._steps[stage].append(raw)
        controller = self.controller
        if ticket.outcome is not None:
            self._journal.ended(self.name, ticket, stage)
            if controller.success_limit_is_due():
                self.poke()
        elif stage == "pull":
            self._journal.pulled(self.name, ticket, what)
        elif stage == "callback":
            self._journal.step(ticket, stage, what)
        if self._listeners:
            step = self._told(raw)
            for listener in self._listeners:
                listener(step)
        if controller.stages[stage].breaker.changed:
            self.poke()
        elif controller.pull_gate.holds or controller.query_gate.holds:
            self._poke_if_over()

    def _poke_if_over(self) -> None:
        """A hold that ends by itself should not last until the next tick: by then the queue has run dry."""
        controller, backlog = self.controller, self.callback.backlog
        if controller.backpressure_is_over(self.queue.depth) or controller.backlog_is_over(
            backlog.count, backlog.bytes
        ):
            self.poke()

    def _told(self, raw: RawStep) -> Step:
        at, stage, ticket, what, attempt = raw
        return Step(at, self.name, stage, ticket.trace_id, ticket.key, what, ticket.age(at), attempt)

    def recent_steps(self) -> list[Step]:
        return [self._told(raw) for steps in self._steps.values() for raw in steps]

    def on_step(self, listener: StepListener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _redate(self, step: float) -> None:
        """Another time was adopted: nobody in flight may die of that."""
        leaders = {ticket for place in self._places() for ticket in place}
        shown = {raw[2] for steps in self._steps.values() for raw in steps}
        for ticket in leaders.union(shown, *(leader.followers for leader in leaders)):
            ticket.redate(step)
        self.queue.line.rank_anew()
        self._tell_minute(is_over=True)
        for steps in self._steps.values():
            for place, raw in enumerate(steps):
                steps[place] = (raw[0] + step, *raw[1:])

    def snapshot(self) -> Snapshot:
        backlog = self.callback.backlog
        return Snapshot(self.queue.depth, backlog.count, backlog.bytes, self._lag)

    def _places(self) -> tuple[Iterable[Ticket], ...]:
        """Every place a ticket in flight can be."""
        return (self.queue.line, self.query.asking, self.callback.line, self.callback.calling)

    def in_flight(self) -> int:
        """Found by looking everywhere, so that a lost one is missed."""
        return sum(ticket.party for place in self._places() for ticket in place)

    # -- operators ---------------------------------------------------------------------------------

    def pause(self, by: str, reason: str = "", for_seconds: float | None = None) -> None:
        self.controller.pause(by, reason, for_seconds)

    def resume(self, by: str, reason: str = "") -> list[str]:
        # What grew too old behind the holds ends now, or it would count against the fresh start.
        self.query.clean(stale=True)
        self.callback.clean()
        released = self.controller.resume(by, self.snapshot(), reason)
        self.tick()
        return released

    async def start(self, by: str) -> None:
        self.controller.release(STAGES, Reason.STOPPED, by)

    async def stop(self, by: str, why: str = "stopped by the operator") -> None:
        self.controller.hold(STAGES, Reason.STOPPED, by, why, "operator")

    def reconfigure(self, config: LaneConfig) -> None:
        """New thresholds and ages, from the next decision on."""
        self.config = config
        self.controller.reconfigure(config)
        for stage in (self.pull, self.query, self.callback):
            stage.config = config
        self.queue.config = config.queue
        self.tick()

    # -- status ------------------------------------------------------------------------------------

    def state(self) -> str:
        controller = self.controller
        if self.draining:
            return "draining"
        if controller.held(Reason.STOPPED):
            return "stopped"
        if controller.held(Reason.DROP_RATE):
            return "hard_stopped"
        paused = (Reason.MANUAL, Reason.CREDIT, Reason.AUTH, Reason.SUCCESS_LIMIT)
        if any(controller.held(reason) for reason in paused):
            return "paused"
        troubled = any(mode is not Mode.NORMAL for mode in controller.modes.values())
        backlog = controller.held(Reason.CALLBACK_BACKLOG)
        return "degraded" if troubled or backlog or controller.drop_rate.level is not Level.OK else "running"

    def status(self) -> dict[str, Any]:
        controller, now = self.controller, self._clock.monotonic()
        in_flight = self.in_flight()
        return {
            "state": self.state(),
            "holds": {
                name: [hold.as_dict() for hold in stage.gate.holds.values()]
                for name, stage in controller.stages.items()
            },
            "stages": {
                name: stage.status(controller.modes[name], now) for name, stage in controller.stages.items()
            },
            "troubles": controller.troubles(),
            "queue": {"in_flight": in_flight} | self.queue.status() | controller.room.status(),
            "callbacks": self._callback_status(),
            "counters": dict(controller.ledger.counters),
            "dropped": {str(outcome): controller.ledger.counters[outcome] for outcome in sorted(DROPPED)},
            "drop_rate": controller.drop_rate.status(),
            "conservation": controller.ledger.conservation(in_flight),
            "credits": self.money.credits_status(now),
            "upstream": self.money.upstream_status(),
            "limits": limits(self.config),
        }

    def _callback_status(self) -> dict[str, Any]:
        backlog = self.callback.backlog
        return {
            "pending": self.callback.line.pending + len(self.callback.calling),
            "retrying": self.callback.line.delayed,
            "bytes": backlog.bytes,
            "fill": round(self.controller.backlog_fill(backlog.count, backlog.bytes), 4),
        }
