"""What the control endpoint needs of the process it controls, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pipeline import __version__
from pipeline.clock import Clock
from pipeline.errors import UnknownLane
from pipeline.events import Bus, Step, StepListener
from pipeline.journal.journal import Journal

#: A name is echoed in an error, and a stranger's name may be as long as a message.
ECHO_MAX = 64


class LaneControl(Protocol):
    @property
    def name(self) -> str: ...

    def status(self) -> dict[str, Any]:
        """The lane's object in GET /api/status, complete."""
        ...

    def pause(self, by: str, reason: str = "", for_seconds: float | None = None) -> None: ...

    def resume(self, by: str, reason: str = "") -> list[str]:
        """Answers with the names of the holds it released."""
        ...

    async def start(self, by: str) -> None: ...

    async def stop(self, by: str) -> None: ...

    def recent_steps(self) -> list[Step]:
        """The latest few steps of every stage."""
        ...

    def on_step(self, listener: StepListener) -> Callable[[], None]:
        """Subscribe; the answer unsubscribes."""
        ...


class Daemon(Protocol):
    @property
    def lanes(self) -> Mapping[str, LaneControl]: ...

    @property
    def bus(self) -> Bus: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def journal(self) -> Journal:
        """A `SilentJournal` where it is off."""
        ...

    @property
    def started_at(self) -> float:
        """`clock.monotonic()` when the process began."""
        ...

    @property
    def draining(self) -> bool: ...

    @property
    def ready(self) -> bool:
        """All lanes are open."""
        ...

    def shutdown(self, by: str) -> None:
        """Begins the drain and returns at once."""
        ...


def lanes_named(daemon: Daemon, lane: str | None) -> dict[str, LaneControl]:
    """One lane by its name, or all of them."""
    if lane is None:
        return dict(daemon.lanes)
    if lane not in daemon.lanes:
        raise UnknownLane(lane[:ECHO_MAX], daemon.lanes)
    return {lane: daemon.lanes[lane]}


def whole_status(daemon: Daemon, lane: str | None = None) -> dict[str, Any]:
    clock = daemon.clock
    return {
        "version": __version__,
        "uptime": round(clock.monotonic() - daemon.started_at, 3),
        "now": round(clock.now(), 3),
        "lanes": {name: control.status() for name, control in lanes_named(daemon, lane).items()},
    }


def why_not_ready(daemon: Daemon) -> list[str]:
    """Empty when ready. What an operator wanted (a pause, a stop) is no reason."""
    reasons = []
    if not daemon.ready:
        reasons.append("not all lanes are open yet")
    if daemon.draining:
        reasons.append("draining")
    for name, control in daemon.lanes.items():
        status = control.status()
        if status["state"] == "hard_stopped":
            reasons.append(f"lane {name} is hard stopped")
        elif status["state"] == "stopped" and not _stopped_on_purpose(status):
            reasons.append(f"lane {name} has failed")
    return reasons


def _stopped_on_purpose(status: Mapping[str, Any]) -> bool:
    holds = (hold for stage in status["holds"].values() for hold in stage)
    return any(hold["reason"] == "stopped" and not hold["by"].startswith("failure") for hold in holds)
