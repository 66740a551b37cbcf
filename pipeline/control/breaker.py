"""A circuit breaker: one machine, four modes, six kinds of edge.

    normal ──≥70 % faults──▶ degraded ──<35 % (or idle)──▶ normal
    normal, degraded ──200 in a row──▶ open ──pause over──▶ half_open
    half_open ──most trials good──▶ degraded      half_open ──most bad──▶ open, longer

Where there is too little work for all the trials, those that were made decide after a pause's quiet; where
there is none at all, an emptied window counts as recovered here too.

Every call carries a pass stamped with the generation in which it began. Opening begins a new generation,
so the 500 calls under way when an outage strikes are one trip, not two: what they bring back later says
nothing about now.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pipeline.config import BreakerConfig
from pipeline.control.health import Window
from pipeline.errors import IllegalTransition


class Mode(StrEnum):
    NORMAL = "normal"
    DEGRADED = "degraded"  # slower, still trying
    SEVERE = "severe"  # only a pace: two or more stages degraded at once
    OPEN = "open"  # no calls until the pause ends
    HALF_OPEN = "half_open"  # a few trial calls decide


#: Asked for a dozen times a ticket: by their full names each takes 50 ns in Python 3.11, by these 10.
_OPEN, _HALF_OPEN = Mode.OPEN, Mode.HALF_OPEN

_EDGES = frozenset(
    {
        (Mode.NORMAL, Mode.DEGRADED),
        (Mode.NORMAL, Mode.OPEN),
        (Mode.DEGRADED, Mode.NORMAL),
        (Mode.DEGRADED, Mode.OPEN),
        (Mode.OPEN, Mode.HALF_OPEN),
        (Mode.HALF_OPEN, Mode.DEGRADED),
        (Mode.HALF_OPEN, Mode.OPEN),
    }
)


@dataclass(slots=True, eq=False)
class Pass:
    """Permission for one call; given back exactly once."""

    generation: int
    began: float
    trial: bool
    slow: bool = False  # open for `slow_after`: counted as a fault, though nobody cut it off


@dataclass(frozen=True, slots=True)
class Transition:
    before: Mode
    after: Mode
    why: str
    pause: float = 0.0
    fault: str = ""  # why the last call failed, where it was failures that moved the breaker


class Fault(NamedTuple):
    why: str
    at: float


_ABSENT = object()


class Breaker:
    def __init__(self, config: BreakerConfig, now: float) -> None:
        self.config = config
        self.mode = Mode.NORMAL
        self.window = Window(config.window)
        self.consecutive_faults = 0
        self.last_fault: Fault | None = None
        self.generation = 0
        self._rung = 0
        self._until = now
        self._trials = self._good = self._bad = 0
        self._quiet_since = now  # half-open: when it began, or when its last trial was judged
        self._under_way: dict[Pass, object] = {}  # in order of beginning, so the slow ones are in front
        self._changes: list[Transition] = []

    @property
    def is_tripped(self) -> bool:
        """Open, or not yet known to be well again."""
        return self.mode is _OPEN or self.mode is _HALF_OPEN

    @property
    def changed(self) -> bool:
        return bool(self._changes)

    def drain_changes(self) -> list[Transition]:
        changes, self._changes = self._changes, []
        return changes

    def is_left_alone(self, now: float) -> bool:
        """Half open, and for a whole pause nobody had work to try it with."""
        quiet = now - self._quiet_since
        return self.mode is _HALF_OPEN and not self._trials and quiet >= self.config.pause

    def open_for(self, now: float) -> float:
        return max(0.0, self._until - now) if self.mode is Mode.OPEN else 0.0

    def admits(self) -> bool:
        if self.mode is _HALF_OPEN:
            return self._trials < self.config.trials
        return self.mode is not _OPEN

    def begin(self, now: float) -> Pass:
        trial = self.mode is _HALF_OPEN
        self._trials += trial
        issued = Pass(self.generation, now, trial)
        self._under_way[issued] = None
        return issued

    def succeed(self, issued: Pass, now: float) -> None:
        # The common case by hand: twice a ticket, and each call of a function costs.
        if self._under_way.pop(issued, _ABSENT) is _ABSENT or issued.generation != self.generation:
            return
        self.window.record(now)
        self.consecutive_faults = 0
        if issued.trial and self.mode is Mode.HALF_OPEN:
            self._judge_trials(now)

    def fail(self, issued: Pass, now: float, why: str = "") -> None:
        if not self._give_back(issued) or issued.generation != self.generation:
            return
        self.last_fault = Fault(why, now)
        self.window.record(now, marked=1)
        self.consecutive_faults += 1
        if issued.trial and self.mode is Mode.HALF_OPEN:
            self._judge_trials(now, self.last_fault)
        elif self.consecutive_faults >= self.config.trip_after and self.mode is not Mode.HALF_OPEN:
            self.trip(now, f"{self.consecutive_faults} faults in a row", why)

    def forget(self, issued: Pass) -> None:
        """The call ended in a way that says nothing about health: cancelled, or credit, or auth."""
        if self._give_back(issued) and issued.trial and issued.generation == self.generation:
            self._trials -= 1

    def trip(self, now: float, why: str, fault: str = "") -> None:
        if self.mode is Mode.OPEN:
            return
        pause = min(self.config.pause * 2**self._rung, self.config.pause_max)
        self._rung = min(self._rung + 1, 16)
        self._until = now + pause
        self.generation += 1
        self._move(Mode.OPEN, why, pause, fault)

    def tick(self, now: float) -> None:
        self.window.slide(now)
        if self.mode is Mode.OPEN and now >= self._until:
            self._trials = self._good = self._bad = 0
            self._quiet_since = now
            self._move(Mode.HALF_OPEN, "pause over")
        elif self.mode is Mode.HALF_OPEN:
            self._judge_quiet(now)
        self._judge_window()

    def _give_back(self, issued: Pass) -> bool:
        """False if the call was counted as slow already: one call, one sample."""
        return self._under_way.pop(issued, _ABSENT) is not _ABSENT

    def count_slow_calls(self, now: float) -> int:
        """Those that have become slow since the last look; each is one fault sample, now."""
        slow = 0
        for issued in list(self._under_way):
            if now - issued.began < self.config.slow_after:
                break
            issued.slow = True
            slow += issued.generation == self.generation
            self.fail(issued, now, f"no answer within {self.config.slow_after:g} s")
        return slow

    def _judge_trials(self, now: float, fault: Fault | None = None) -> None:
        self._bad += fault is not None
        self._good += fault is None
        self._quiet_since = now
        most = self.config.trials / 2
        if self._good > most:
            self._move(Mode.DEGRADED, f"{self._good} of {self._good + self._bad} trials good")
        elif fault is not None and self._bad >= most:
            self.trip(now, f"{self._bad} of {self._good + self._bad} trials bad", fault.why)

    def _judge_quiet(self, now: float) -> None:
        """Five tickets make no ten trials, and half-open must not be for ever either."""
        made = self._good + self._bad
        if self._trials > made or now - self._quiet_since < self.config.pause:
            return
        if self._good > self._bad:
            self._move(Mode.DEGRADED, f"{self._good} of {made} trials good")
        elif made:
            why = self.last_fault.why if self.last_fault else ""
            self.trip(now, f"{self._bad} of {made} trials bad", why)
        elif not self.window.total:
            self._move(Mode.DEGRADED, "idle")

    def _judge_window(self) -> None:
        share = self.window.share
        enough = self.window.total >= self.config.min_samples
        if self.mode is Mode.NORMAL and enough and share >= self.config.degrade_at:
            fault = self.last_fault
            self._move(Mode.DEGRADED, f"{share:.0%} faults", fault=fault.why if fault else "")
        elif self.mode is Mode.DEGRADED and share < self.config.recover_below:
            self._rung = 0
            self._move(Mode.NORMAL, f"{share:.0%} faults" if self.window.total else "idle")

    def _move(self, after: Mode, why: str, pause: float = 0.0, fault: str = "") -> None:
        if (self.mode, after) not in _EDGES:
            raise IllegalTransition("breaker", self.mode, after)
        if self.mode is Mode.HALF_OPEN and after is Mode.DEGRADED:
            self.consecutive_faults = 0  # the outage's row is over, also where its last trial was a bad one
        self._changes.append(Transition(self.mode, after, why, pause, fault))
        self.mode = after
