"""A lane and a simulated world in virtual time, watched: the invariants of every scenario are checked here.

`play(main, ...)` runs `main(show)`; afterwards the world falls silent, what is in flight ends, and the books
are compared with what the world saw.
"""

from __future__ import annotations

import math
import os
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.config import LaneConfig, SimConfig
from pipeline.events import Bus, Event, Kind
from pipeline.lane import Lane
from pipeline.ports import Provider, Pulled, Sink, Source
from pipeline.sim.behaviour import Behaviour, changed
from pipeline.sim.ports import SimProvider, SimSink, SimSource
from pipeline.sim.scenarios import find_script
from pipeline.sim.virtual import VirtualClock, run_virtual
from pipeline.sim.world import World
from pipeline.ticket import Answer, Receipt, Ticket

SMALL_PAGES = {"page_min": 1000, "page_max": 1200}
QUIET_AFTER = 700.0

_EDGES = {
    ("normal", "degraded"),
    ("normal", "open"),
    ("degraded", "normal"),
    ("degraded", "open"),
    ("open", "half_open"),
    ("half_open", "degraded"),
    ("half_open", "open"),
}


def seed() -> int:
    """The same every time unless TIDEGATE_SEED says otherwise; printed, so that a failure can be replayed."""
    chosen = int(os.environ.get("TIDEGATE_SEED", "1"))
    print(f"TIDEGATE_SEED={chosen}")
    return chosen


class WatchedSource:
    def __init__(self, source: Source) -> None:
        self._source = source
        self.open, self.close, self.volume = source.open, source.close, source.volume
        self.calls = 0

    async def pull(self, limit: int, timeout: float) -> Pulled:
        assert math.isfinite(timeout)
        self.calls += 1
        return await self._source.pull(limit, timeout)


class WatchedProvider:
    def __init__(self, provider: Provider, config: LaneConfig, clock: VirtualClock) -> None:
        self._provider, self._config, self._clock = provider, config, clock
        self.open, self.close, self.credits = provider.open, provider.close, provider.credits
        self._asked: set[str] = set()
        self._calls: deque[tuple[float, bool, bool]] = deque()  # when, a fault's retry, it worked

    async def query(self, ticket: Ticket, timeout: float) -> Answer:
        age = ticket.age(self._clock.now())
        assert math.isfinite(timeout)
        assert timeout <= max(0.05, self._config.query.max_age - age) + 1e-6
        first = ticket.queries == 1
        assert age <= (self._config.query.stale_age if first else self._config.query.max_age)
        assert ticket.key not in self._asked, "one paid query per key at a time"
        retry = ticket.faults > 0
        self._asked.add(ticket.key)
        try:
            answer = await self._provider.query(ticket, timeout)
        finally:
            self._asked.remove(ticket.key)
        self._calls.append((self._clock.monotonic(), retry, not answer.verdict.is_fault))
        self._check_budget()
        return answer

    def _check_budget(self) -> None:
        """Retries that fail stay within their share in any minute; one that works earns two."""
        since = self._clock.monotonic() - 60
        while self._calls[0][0] < since:
            self._calls.popleft()
        if len(self._calls) % 50:
            return
        retries = sum(retry for _, retry, _ in self._calls)
        worked = sum(retry and ok for _, retry, ok in self._calls)
        budget = self._config.retry
        allowed = budget.share * len(self._calls) + budget.per_second * 60 + 2 * worked
        # What began before the minute and ended in it is counted here: at most what can be in flight.
        assert retries <= allowed + self._config.query.workers * self._config.query.batch


class WatchedSink:
    def __init__(self, sink: Sink, config: LaneConfig, clock: VirtualClock) -> None:
        self._sink, self._config, self._clock = sink, config, clock
        self.open, self.close = sink.open, sink.close

    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        age = ticket.age(self._clock.now())
        assert math.isfinite(timeout)
        assert age <= self._config.callback.max_age
        return await self._sink.deliver(ticket, answer, timeout)


@dataclass
class Show:
    clock: VirtualClock
    config: LaneConfig
    world: World
    lane: Lane
    bus: Bus
    source: WatchedSource
    events: list[Event] = field(default_factory=list)
    began: float = 0.0

    @property
    def counters(self) -> Mapping[str, int]:
        return self.lane.controller.ledger.counters

    @property
    def dropped(self) -> int:
        return self.lane.controller.ledger.dropped

    @property
    def waiting_upstream(self) -> int:
        return int(self.world.truth()["backlog"])

    def at(self, event: Event) -> float:
        return event.at - self.began

    def of_kind(self, kind: Kind, stage: str = "") -> list[Event]:
        return [event for event in self.events if event.kind is kind and stage in event.stage]

    def holds(self, reason: str) -> list[Event]:
        return [event for event in self.of_kind(Kind.HOLD) if event.detail["reason"] == reason]

    def releases(self, reason: str) -> list[Event]:
        return [event for event in self.of_kind(Kind.RELEASE) if event.detail["reason"] == reason]

    async def go(self, seconds: float) -> None:
        """Let time pass, looking at the invariants every half second."""
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(0.5, left))
            self.check()

    async def until(self, condition: Callable[[], bool], within: float) -> float:
        """Seconds until it holds; fails if it does not within that time."""
        began = self.clock.monotonic()
        while not condition():
            assert self.clock.monotonic() - began < within, "it did not come"
            await self.go(0.25)
        return self.clock.monotonic() - began

    async def delivered_per_second(self, seconds: float) -> float:
        before = self.counters["delivered"]
        await self.go(seconds)
        return (self.counters["delivered"] - before) / seconds

    def check(self) -> None:
        balance = self.lane.controller.ledger.conservation(self.lane.in_flight())
        assert balance["balanced"], balance
        queue = self.config.queue
        room = self.lane.controller.room
        assert self.lane.queue.depth + room.reserved <= queue.high_water + self.config.pull.limit
        assert room.reserved >= 0

    def check_breakers(self) -> None:
        for stage in ("pull", "query", "callback"):
            mode, rung = "normal", 0
            for event in self.of_kind(Kind.BREAKER, stage):
                before, after = event.detail["before"], event.detail["after"]
                assert before == mode
                assert (before, after) in _EDGES
                mode = after
                if after == "open":
                    breaker = self.config.breaker
                    assert event.detail["pause"] == min(breaker.pause * 2**rung, breaker.pause_max)
                    rung += 1
                elif after == "normal":
                    rung = 0

    def check_holds_come_in_pairs(self) -> None:
        held: set[tuple[str, str]] = set()
        for event in self.events:
            if event.kind not in (Kind.HOLD, Kind.RELEASE):
                continue
            for stage in event.stage.split(","):
                entry = (stage, event.detail["reason"])
                assert (entry in held) == (event.kind is Kind.RELEASE), event
                held ^= {entry}

    def check_against_the_world(self) -> None:
        truth = self.world.truth()
        assert truth["messages"] == []
        assert truth["twice"] == 0
        assert truth["late"] == 0
        assert truth["concurrent_same_key_max"] <= 1
        assert self.counters["pulled"] == truth["handed_out"] + truth["repeats"]
        # Accepted, but the answer cut off and no time left to ask again: the world has it, we cannot know.
        assert 0 <= truth["delivered"] - self.counters["delivered"] <= self.counters["callback_faults"]


def play(
    main: Callable[[Show], Coroutine[Any, Any, None]],
    *,
    scenario: str = "calm",
    rate: float = 50,
    config: Mapping[str, Any] | None = None,
    ports: Callable[[WatchedSource, WatchedProvider, WatchedSink], tuple[Any, Any, Any]] | None = None,
    end: bool = True,
    **behaviour: Any,
) -> None:
    chosen = seed()
    random.seed(chosen)

    async def run(clock: VirtualClock) -> None:
        show = _show(clock, scenario, rate, config or {}, behaviour, ports, chosen)
        show.bus.subscribe(show.events.append)
        show.began = clock.now()
        await show.lane.open()
        try:
            await main(show)
            if end:
                await _end(show)
        finally:
            await show.lane.close()
        show.check_breakers()
        show.check_holds_come_in_pairs()

    run_virtual(run)


def _show(
    clock: VirtualClock,
    scenario: str,
    rate: float,
    config: Mapping[str, Any],
    behaviour: Mapping[str, Any],
    ports: Callable[[WatchedSource, WatchedProvider, WatchedSink], tuple[Any, Any, Any]] | None,
    seed: int,
) -> Show:
    lane_config = LaneConfig(
        **{"source": "sim", "provider": "sim", "sink": "sim", **config}, sim=SimConfig(scenario=scenario)
    )
    world = World(clock, changed(Behaviour(rate=rate), {**SMALL_PAGES, **behaviour}), seed)
    source = WatchedSource(SimSource(world, find_script(scenario)))
    provider = WatchedProvider(SimProvider(world), lane_config, clock)
    sink = WatchedSink(SimSink(world), lane_config, clock)
    ends: tuple[Any, Any, Any] = ports(source, provider, sink) if ports else (source, provider, sink)
    bus = Bus()
    lane = Lane("shopee", lane_config, *ends, clock, bus)
    return Show(clock, lane_config, world, lane, bus, source)


async def _end(show: Show) -> None:
    """Nothing new arrives; all that is in flight ends, one way or the other."""

    def silent() -> bool:
        show.world.change({"rate": 0})  # again and again: the scenario may not be over
        return not show.waiting_upstream and not show.lane.in_flight()

    show.lane.resume("the end")
    await show.until(silent, QUIET_AFTER)
    show.check_against_the_world()
