"""The breaker under any sequence of calls, compared with a naive one that keeps every sample."""

from __future__ import annotations

from dataclasses import dataclass

from control_makers import PROPERTY
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pipeline.config import BreakerConfig
from pipeline.control.breaker import Breaker, Mode, Pass, Transition

CONFIG = BreakerConfig(
    window=6,
    min_samples=4,
    degrade_at=0.7,
    recover_below=0.35,
    trip_after=5,
    pause=2,
    pause_max=12,
    trials=4,
    slow_after=3,
)
LADDER = (2, 4, 8, 12, 12, 12)
LEGAL = {
    ("normal", "degraded"),
    ("normal", "open"),
    ("degraded", "normal"),
    ("degraded", "open"),
    ("open", "half_open"),
    ("half_open", "degraded"),
    ("half_open", "open"),
}


@dataclass
class Known:
    """One call as the model knows it."""

    issued: Pass
    outage: int
    began: float
    trial: bool


class BreakerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 50.5
        self.breaker = Breaker(CONFIG, self.now)
        self.changes: list[Transition] = []
        self.flight: list[Known] = []
        self.slow: list[Pass] = []
        # the naive breaker
        self.mode = "normal"
        self.samples: list[tuple[int, bool]] = []
        self.row = self.outages = self.rung = 0
        self.until = 0.0
        self.trials = self.good = self.bad = 0
        self.quiet_since = 0.0

    # -- what happens -------------------------------------------------------------------------------

    @precondition(lambda self: self.breaker.admits())
    @rule(count=st.integers(1, 6))
    def begin(self, count: int) -> None:
        for _ in range(count):
            if self.breaker.admits():
                trial = self.mode == "half_open"
                self.trials += trial
                self.flight.append(Known(self.breaker.begin(self.now), self.outages, self.now, trial))

    @rule(data=st.data(), ok=st.sampled_from([True, False, False]), count=st.integers(1, 8))
    def finish(self, data: st.DataObject, ok: bool, count: int) -> None:
        for _ in range(min(count, len(self.flight))):
            known = self.flight.pop(data.draw(st.integers(0, len(self.flight) - 1)))
            (self.breaker.succeed if ok else self.breaker.fail)(known.issued, self.now)
            self._sample(known, fault=not ok)

    @precondition(lambda self: self.flight)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        known = self.flight.pop(data.draw(st.integers(0, len(self.flight) - 1)))
        self.breaker.forget(known.issued)
        self.trials -= known.trial and known.outage == self.outages

    @precondition(lambda self: self.slow)
    @rule(ok=st.booleans())
    def a_slow_call_comes_back_after_all(self, ok: bool) -> None:
        issued = self.slow.pop()
        (self.breaker.succeed if ok else self.breaker.fail)(issued, self.now)

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.0, 7.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.breaker.count_slow_calls(self.now)
        self.breaker.tick(self.now)
        for known in [k for k in self.flight if self.now - k.began >= 3]:
            self.flight.remove(known)
            self.slow.append(known.issued)
            self._sample(known, fault=True)
        if self.mode == "open" and self.now >= self.until:
            self.mode = "half_open"
            self.trials = self.good = self.bad = 0
            self.quiet_since = self.now
        elif self.mode == "half_open":
            self._judge_quiet()
        total, faults = self._seen()
        if self.mode == "normal" and total >= 4 and faults * 10 >= total * 7:
            self.mode = "degraded"
        elif self.mode == "degraded" and faults * 100 < total * 35 + (not total):
            self.mode, self.rung = "normal", 0
        assert (self.breaker.window.total, self.breaker.window.marked) == (total, faults)

    @rule()
    def trip_from_outside(self) -> None:
        self.breaker.trip(self.now, "drop rate")
        if self.mode != "open":
            self._open()

    # -- the naive breaker --------------------------------------------------------------------------

    def _seen(self) -> tuple[int, int]:
        seen = [fault for second, fault in self.samples if int(self.now) - second < 6]
        return len(seen), sum(seen)

    def _judge_quiet(self) -> None:
        if self.trials > self.good + self.bad or self.now - self.quiet_since < 2:
            return
        if self.good > self.bad or not (self.bad or self._seen()[0]):
            self._recover()
        elif self.bad:
            self._open()

    def _sample(self, known: Known, fault: bool) -> None:
        if known.outage != self.outages:
            return
        self.samples.append((int(self.now), fault))
        self.row = self.row + 1 if fault else 0
        if self.mode == "half_open" and known.trial:
            self.good += not fault
            self.bad += fault
            self.quiet_since = self.now
            if self.good > 2:
                self._recover()
            elif self.bad >= 2:
                self._open()
        elif self.mode in ("normal", "degraded") and self.row >= 5:
            self._open()

    def _open(self) -> None:
        self.mode = "open"
        self.until = self.now + LADDER[min(self.rung, 5)]
        self.rung += 1
        self.outages += 1

    def _recover(self) -> None:
        self.mode, self.row = "degraded", 0

    # -- what always holds --------------------------------------------------------------------------

    @invariant()
    def both_agree(self) -> None:
        assert self.breaker.mode == self.mode
        assert self.breaker.consecutive_faults == self.row
        assert self.breaker.open_for(self.now) == (
            max(0, self.until - self.now) if self.mode == "open" else 0
        )
        assert self.breaker.admits() == (
            self.trials < 4 if self.mode == "half_open" else self.mode in ("normal", "degraded")
        )

    @invariant()
    def only_legal_edges_in_one_unbroken_chain(self) -> None:
        at = str(self.changes[-1].after) if self.changes else "normal"
        for change in self.breaker.drain_changes():
            assert str(change.before) == at
            assert (str(change.before), str(change.after)) in LEGAL
            at = str(change.after)
            self.changes.append(change)
        assert at == self.breaker.mode

    @invariant()
    def the_ladder_is_climbed_one_rung_at_a_time_and_left_only_in_normal(self) -> None:
        rung = 0
        for change in self.changes:
            if change.after is Mode.OPEN:
                assert change.pause == LADDER[min(rung, 5)]
                rung += 1
            elif change.after is Mode.NORMAL:
                rung = 0


BreakerMachine.TestCase.settings = PROPERTY
TestBreakerMachine = BreakerMachine.TestCase
