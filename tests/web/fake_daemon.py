"""A daemon without a pipeline: every lane keeps what it was told, and says so in the contract's shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipeline.clock import SystemClock
from pipeline.errors import CommandError
from pipeline.events import Bus, Event, Kind, Step, StepListener
from pipeline.journal.journal import Journal
from pipeline.journal.silent import SilentJournal
from pipeline.web.schemas import COUNTERS, STAGES

STEPS_KEPT = 60


class FakeLane:
    def __init__(self, name: str) -> None:
        self.name = name
        self.state = "running"
        self.holds: dict[str, list[dict[str, Any]]] = {stage: [] for stage in STAGES}
        self.counters = dict.fromkeys(COUNTERS, 0) | {"credit_expired": 0}
        self.calls: list[tuple[Any, ...]] = []
        self.listeners: list[StepListener] = []
        self.steps: list[Step] = []
        self.fails: Exception | None = None
        self.status_calls = 0

    def hold(self, stage: str, reason: str, by: str, detail: str = "") -> None:
        self.holds[stage].append(
            {"reason": reason, "since": 1.0, "by": by, "detail": detail, "releases": "operator"}
        )

    def status(self) -> dict[str, Any]:
        self.status_calls += 1
        if self.fails is not None:
            raise self.fails
        return {
            "state": self.state,
            "holds": {stage: list(holds) for stage, holds in self.holds.items()},
            "stages": {stage: _stage() for stage in STAGES},
            "troubles": [],
            "queue": {
                "pending": 3,
                "delayed": 2,
                "in_flight": 7,
                "keys": 5,
                "high_water": 800,
                "low_water": 100,
                "mark": 400,
                "processed_keys": 11,
                "oldest_age": None,
            },
            "callbacks": {"pending": 1, "retrying": 0, "bytes": 90_000, "fill": 0.0},
            "counters": dict(self.counters),
            "drop_rate": {"rate": 0.0, "dropped": 0, "delivered": 0, "level": "ok"},
            "conservation": {"pulled": 0, "accounted": 0, "balanced": True},
            "credits": {"balance": 99_611, "spent": 12, "per_delivery": None, "hours_left": None},
            "upstream": {"today": 12_345, "since_start": 5},
            "limits": {"trip_after": 200},
        }

    def pause(self, by: str, reason: str = "", for_seconds: float | None = None) -> None:
        self._obey("pause", by, reason, for_seconds)
        self.state = "paused"
        self.hold("pull", "manual", by, reason)

    def resume(self, by: str, reason: str = "") -> list[str]:
        self._obey("resume", by, reason)
        self.state = "running"
        released = [hold["reason"] for hold in self.holds["pull"]]
        self.holds["pull"].clear()
        return released

    async def start(self, by: str) -> None:
        self._obey("start", by)
        self.state = "running"
        self.holds = {stage: [] for stage in STAGES}

    async def stop(self, by: str) -> None:
        self._obey("stop", by)
        self.state = "stopped"
        for stage in STAGES:
            self.hold(stage, "stopped", by)

    def recent_steps(self) -> list[Step]:
        return self.steps[-STEPS_KEPT:]

    def on_step(self, listener: StepListener) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def step(self, stage: str, trace_id: str, at: float = 1.0) -> None:
        step = Step(at, self.name, stage, trace_id, "1:2:my", "answered", 1.5)
        self.steps.append(step)
        for listener in tuple(self.listeners):
            listener(step)

    def _obey(self, *call: Any) -> None:
        self.calls.append(call)
        if isinstance(self.fails, CommandError):
            raise self.fails


def _stage() -> dict[str, Any]:
    return {
        "mode": "normal",
        "slots": 500,
        "busy": 4,
        "rate_per_min": 12.5,
        "window": {"total": 10, "faults": 1, "fault_rate": 0.1},
        "consecutive_faults": 0,
        "last_fault": None,
        "open_for": None,
        "latency": {"p50": 0.2, "p95": 0.5, "p99": None},
    }


class FakeDaemon:
    def __init__(self, *names: str) -> None:
        self.lanes = {name: FakeLane(name) for name in names or ("shopee", "lazada")}
        self.bus = Bus()
        self.clock = SystemClock()
        self.journal: Journal = SilentJournal()
        self.started_at = self.clock.monotonic()
        self.draining = False
        self.ready = True
        self.shutdowns: list[str] = []

    def shutdown(self, by: str) -> None:
        self.shutdowns.append(by)
        self.draining = True

    def publish(self, lane: str = "shopee", **detail: Any) -> None:
        self.bus.publish(Event(self.clock.now(), lane, Kind.HOLD, stage="pull", detail=detail))
