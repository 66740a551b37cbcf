"""Everything that decides about one stage: gate, breaker, limiter, retry budget, and what it has seen."""

from __future__ import annotations

from typing import Any

from pipeline.config import LaneConfig
from pipeline.control.breaker import Breaker, Mode, Pass
from pipeline.control.budget import RetryBudget
from pipeline.control.gate import Gate
from pipeline.control.health import Window
from pipeline.control.latency import Latency
from pipeline.control.limiter import Limiter
from pipeline.logs import redact

METER_SECONDS = 60
#: Half-open trials hang too, in a provider that hangs: this many rounds of them fit in a ticket's life.
HUNG_TRIALS = 10
#: Of a failure's reason; what is cut off first must be longer, or half a secret could be left over.
WHY_SHOWN = 200
WHY_READ = 2000


class StageControl:
    def __init__(self, name: str, slots: int, config: LaneConfig, now: float) -> None:
        self.name = name
        self.gate = Gate(name, slots)
        self.breaker = Breaker(config.breaker, now)
        self.limiter = Limiter(slots, now)
        self.budget = RetryBudget(config.retry)
        self.latency = Latency()
        self.meter = Window(METER_SECONDS)
        self.busy = 0
        self._slow = 0  # of the busy ones, those open for longer than `slow_after`
        self._ended = 0  # since the last tick; the meter is fed then
        self.hung = 0  # calls from before the breaker last opened: they say nothing and hold no slot
        self._slots = slots
        self._generation = self.breaker.generation
        self.troubles: dict[str, str] = {}  # by name, with its latest error: until a call goes through
        self.troubles_told: set[str] = set()
        self.median = 0.0  # of this stage's own call times, refreshed with the tick; 0 while unknown

    def may_start(self) -> bool:
        gate, breaker = self.gate, self.breaker
        if gate.holds or not breaker.admits():
            return False
        if self._generation != breaker.generation:
            self._write_off()
        return self.busy < gate.slots and (not self.hung or self.hung < self._hung_max())

    def _hung_max(self) -> int:
        return self._slots + HUNG_TRIALS * self.breaker.config.trials

    def _write_off(self) -> None:
        """The breaker has opened: one that hangs for four minutes must not keep its slots that long."""
        if self._generation != self.breaker.generation:
            self._generation = self.breaker.generation
            self.hung += self.busy
            self.busy = self._slow = 0

    def begin(self, now: float) -> Pass:
        if self._generation != self.breaker.generation:
            self._write_off()
        self.busy += 1
        return self.breaker.begin(now)

    def end(self, issued: Pass, now: float, *, ok: bool, throttled: bool = False, why: str = "") -> None:
        """The call came back and says something about the far side's health; `why` = what went wrong."""
        self._seen(issued, now, throttled)
        if ok:
            if self.troubles:
                self.troubles.clear()
                self.troubles_told.clear()
            self.latency.record(now, now - issued.began)
            self.breaker.succeed(issued, now)
        else:
            self.breaker.fail(issued, now, said_shortly(why))

    def end_unsaid(self, issued: Pass, now: float) -> None:
        """It ended without telling anything about health: credit, auth, or cancelled by us."""
        self._seen(issued, now, throttled=False)
        self.breaker.forget(issued)

    def _seen(self, issued: Pass, now: float, throttled: bool) -> None:
        if self._generation != self.breaker.generation:
            self._write_off()
        if issued.generation == self._generation:
            self.limiter.record(throttled, self.busy)
            self.busy -= 1
            self._slow -= issued.slow
        else:
            self.hung -= 1
        self._ended += 1

    def tick(self, now: float, lag: float = 0.0) -> None:
        self.latency.slide(now)
        self.meter.record(now, count=self._ended)
        self._ended = 0
        slow = self.breaker.count_slow_calls(now)
        if slow:
            self._slow += slow
            in_time = self.meter.total / METER_SECONDS * self.breaker.config.slow_after * 0.8
            # The slow ones keep their slots: the rest must not be left with none.
            self.limiter.too_slow(self._slow + max(in_time, float(self.breaker.config.trials)), now)
        self.breaker.tick(now)
        self._write_off()
        median = self.latency.quantiles(0.5)[0]
        self.median = median or 0.0
        self.limiter.tick(now, median, lag)

    def status(self, mode: Mode, now: float) -> dict[str, Any]:
        window = self.breaker.window
        fault = self.breaker.last_fault
        p50, p95, p99 = self.latency.quantiles(0.5, 0.95, 0.99)
        return {
            "mode": str(mode),
            "slots": self.gate.slots,
            "busy": self.busy,
            "hung": self.hung,
            "rate_per_min": self.meter.total,
            "window": {
                "total": window.total,
                "faults": window.marked,
                "fault_rate": round(window.share, 4),
            },
            "consecutive_faults": self.breaker.consecutive_faults,
            "last_fault": fault and {"why": fault.why, "ago": round(now - fault.at, 1)},
            "open_for": round(self.breaker.open_for(now), 1),
            "latency": {"p50": _rounded(p50), "p95": _rounded(p95), "p99": _rounded(p99)},
        }


def said_shortly(why: str) -> str:
    """One line that can be shown anywhere: a port of somebody else's may say more than it should."""
    return " ".join(redact(why[:WHY_READ]).split())[:WHY_SHOWN]


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
