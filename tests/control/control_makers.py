"""What the control tests are made of: a clock moved by hand, a lane's configuration, a listening ear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

from pipeline.config import BreakerConfig, LaneConfig
from pipeline.control.backpressure import Room
from pipeline.control.breaker import Breaker, Mode
from pipeline.control.controller import Controller, Snapshot
from pipeline.control.gate import Hold, Reason
from pipeline.events import Bus, Event, Kind
from pipeline.ticket import Outcome, Ticket

#: Too late on our side: what the drop rate is made of.
LATE_NAMES = {
    "queue_expired",
    "query_stale",
    "query_expired",
    "callback_expired",
    "retry_expired",
    "retry_exhausted",
}
EMPTY = Snapshot(depth=0, backlog_count=0, backlog_bytes=0)

#: Property tests print what is needed to run the failing example again.
PROPERTY = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


class HandClock:
    """Time passes when the test says so. The monotonic clock starts off a whole second, as real ones do."""

    def __init__(self, start: float = 1000.25) -> None:
        self.time = start
        self.wall = 1_760_000_000.0
        self.wall_step = 0.0
        self.listeners: list[Callable[[float], None]] = []

    def now(self) -> float:
        return self.wall + self.time

    def monotonic(self) -> float:
        return self.time

    def step(self) -> float:
        return self.wall_step

    def adopt(self) -> None:
        step, self.wall_step = self.wall_step, 0.0
        self.wall += step
        for listener in self.listeners:
            listener(step)

    def on_adopt(self, listener: Callable[[float], None]) -> None:
        self.listeners.append(listener)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("control does not sleep")


def lane_config(**sections: Any) -> LaneConfig:
    return LaneConfig(source="sim", provider="sim", sink="sim", **sections)


def ticket(key: str = "1:2:sg", trace: str = "t", created: float = 0.0) -> Ticket:
    return Ticket(key=key, trace_id=trace, stamp=None, created=created)


def hold_of(reason: Reason, since: float = 0.0, until: float | None = None) -> Hold:
    return Hold(reason, since, "test", "why", "operator", until)


def call(breaker: Breaker, now: float, ok: bool) -> None:
    issued = breaker.begin(now)
    (breaker.succeed if ok else breaker.fail)(issued, now)


def feed(breaker: Breaker, now: float, good: int = 0, bad: int = 0) -> None:
    """The bad ones first, the good ones after: `bad` in a row is `bad`."""
    for _ in range(bad):
        call(breaker, now, ok=False)
    for _ in range(good):
        call(breaker, now, ok=True)


def mixed(breaker: Breaker, now: float, good: int, bad: int) -> None:
    """Never `trip_after` in a row: the good ones are spread between the bad ones."""
    done = 0
    for number in range(good + bad):
        fault = (number + 1) * bad // (good + bad) > done
        done += fault
        call(breaker, now, ok=not fault)


def look(breaker: Breaker, now: float) -> None:
    """What a stage's tick does to its breaker: slow calls first, then the window and the pause."""
    breaker.count_slow_calls(now)
    breaker.tick(now)


def look_at(room: Room, now: float, depth: int = 0, *, asking: int = 0, served: bool = True) -> None:
    room.tick(now, depth, asking, served)


def tripped(now: float, **config: Any) -> Breaker:
    breaker = Breaker(BreakerConfig(**config), now)
    feed(breaker, now, bad=breaker.config.trip_after)
    assert breaker.mode is Mode.OPEN
    return breaker


class Desk:
    """A controller, its clock, and every event it has spoken."""

    def __init__(self, **sections: Any) -> None:
        self.clock = HandClock()
        self.events: list[Event] = []
        bus = Bus()
        bus.subscribe(self.events.append)
        self.controller = Controller("lane", lane_config(**sections), self.clock, bus)

    def tick(self, snapshot: Snapshot = EMPTY, *, after: float = 0.25) -> None:
        self.clock.time += after
        self.controller.tick(snapshot)

    def deep(self, depth: int, *, after: float = 0.25) -> None:
        self.tick(Snapshot(depth, 0, 0), after=after)

    def finish(self, outcome: Outcome, times: int = 1) -> None:
        for number in range(times):
            self.controller.finish(ticket(trace=str(number)), outcome)

    def holds(self, stage: str) -> set[str]:
        return {str(reason) for reason in self.controller.stages[stage].gate.holds}

    def edges(self, reason: Reason) -> list[str]:
        """hold, release, hold, … as they were announced."""
        kinds = (Kind.HOLD, Kind.RELEASE)
        return [str(e.kind) for e in self.events if e.kind in kinds and e.detail["reason"] == reason]

    def of(self, kind: Kind) -> list[Event]:
        return [event for event in self.events if event.kind is kind]

    def slots(self) -> dict[str, int]:
        return {name: stage.gate.slots for name, stage in self.controller.stages.items()}
