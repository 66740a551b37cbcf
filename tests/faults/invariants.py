"""What must hold at every moment of every fault, seen from outside. The numbers are those of FAULTS.md."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.app import Daemon
from pipeline.events import Event, Kind, Step
from pipeline.lane import Lane
from pipeline.sim.world import World
from pipeline.texts import Texts
from tests.scenarios.stage_play import _EDGES as BREAKER_EDGES

WEB, QUERY, PHONE, WECOM = "canary-web-5b", "canary-query-6a", "canary-phone-79", "canary-wecom-88"
TICKET = "tok-sim-"  # how the tokens of the world's tickets begin
CANARIES = (WEB, QUERY, PHONE, WECOM, TICKET)

#: Between our decision to send and the world's look at its clock, on a machine that does much else.
GRACE = 1.5
ALERTS_PER_MINUTE = 20
ALERT_BYTES = 2048
#: Alerts of what has no end to tell of.
ONCE = (
    *("tls", "too_large", "descriptors", "overflow", "restart"),
    *("journal_set_aside", "journal_gone", "journal_log_damaged", "journal_rows_lost"),
    "journal_unclaimed",
)
#: Ways to end after the answer was paid for.
UNDELIVERED = ("rejected", "callback_expired", "retry_expired", "retry_exhausted", "crashed")
_BURST_SECONDS = 5.0


def secrets_in(places: Mapping[str, str]) -> list[str]:
    """Invariant 12."""
    return [
        f"{canary} in {place}: …{text[max(0, text.index(canary) - 100) :][:200]}"
        for place, text in places.items()
        for canary in CANARIES
        if canary in text
    ]


@dataclass
class Record:
    """What one lane did, step by step."""

    lane: Lane
    steps: Counter[tuple[str, str]] = field(default_factory=Counter)
    ages: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    worked: Counter[str] = field(default_factory=Counter)  # retries that succeeded
    traces: dict[str, list[tuple[str, str, float]]] = field(default_factory=dict)
    depth_max: int = 0
    backlog_max: int = 0
    _failed: set[tuple[str, str]] = field(default_factory=set)

    def add(self, step: Step) -> None:
        self.steps[step.stage, step.what] += 1
        self.ages.setdefault((step.stage, step.what), []).append(step.age)
        self.traces.setdefault(step.trace_id, []).append((step.stage, step.what, step.at))
        if step.stage == "pull" or step.what.endswith(("_expired", "_stale", "_exhausted", "crashed")):
            return
        self.calls[step.stage] += 1
        entry = (step.stage, step.trace_id)
        if step.what in ("fault", "provider_error"):
            self._failed.add(entry)
        elif entry in self._failed:
            self.worked[step.stage] += 1
            if step.what == "processing":
                self._failed.discard(entry)

    def look(self) -> None:
        """Between two turns of the loop: the books, and the room in the queue."""
        lane = self.lane
        balance = lane.controller.ledger.conservation(lane.in_flight())
        assert balance["balanced"], balance  # 1
        depth = lane.queue.depth + lane.controller.room.reserved
        self.depth_max = max(self.depth_max, depth)
        self.backlog_max = max(self.backlog_max, lane.callback.backlog.count)
        assert depth <= lane.config.queue.high_water + lane.config.pull.limit, depth  # 6
        assert lane.controller.room.reserved >= 0


class Watch:
    """Listens from the first moment, and looks whenever something has happened."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.began = daemon.clock.monotonic()
        self.events: list[Event] = []
        self.wrong: list[str] = []
        self.records = {name: Record(lane) for name, lane in daemon.lanes.items()}
        self._due = False
        daemon.bus.subscribe(self.events.append)
        for record in self.records.values():
            record.lane.on_step(lambda step, record=record: self._step(record, step))

    def _step(self, record: Record, step: Step) -> None:
        record.add(step)
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._due = False
        try:
            for record in self.records.values():
                record.look()
        except AssertionError as error:
            self.wrong.append(str(error))

    def of_kind(self, kind: Kind, stage: str = "") -> list[Event]:
        return [event for event in self.events if event.kind is kind and stage in event.stage]


def check_invariants(
    watch: Watch, world: World | None, alerts: Iterable[Mapping[str, Any]], over: bool = True
) -> None:
    """`over` = the fault has passed and nothing is in flight: then every alert that fired has recovered."""
    assert watch.wrong == [], watch.wrong[:3]  # 1 and 6, all along
    for name, record in watch.records.items():
        record.look()
        _check_breakers(record.lane, [event for event in watch.events if event.lane == name])  # 8
        _check_budget(record, watch.daemon.clock.monotonic() - watch.began)  # 10
        _check_ends(record)  # 2
    if world is not None and len(watch.records) == 1:
        (record,) = watch.records.values()
        _check_truth(record, world.truth())  # 2 to 5
    _check_alerts(list(alerts), over)  # 13


def _check_ends(record: Record) -> None:
    """Invariant 2, from our side: no trace has two outcomes. (A key's second ticket has its own trace.)"""
    final = {"delivered", "rejected", *map(str, record.lane.status()["dropped"]), "pull_expired"}
    for trace, steps in record.traces.items():
        ends = [what for _, what, _ in steps if what in final]
        assert len(ends) <= 1, (trace, steps)


def _check_truth(record: Record, truth: Mapping[str, Any]) -> None:
    config, counters = record.lane.config, record.lane.controller.ledger.counters
    assert truth["twice"] == 0, truth  # 2
    assert truth["late"] == truth["wrong_token"] == truth["bad_results"] == 0, truth
    assert truth["protocol_errors"] == 0, truth["messages"]
    # A query that broke before it reached the world is our first and not the world's.
    stale = config.query.max_age if counters["query_faults"] else config.query.stale_age
    assert truth["first_query_age_max"] <= stale + GRACE, truth  # 3
    assert truth["later_query_age_max"] <= config.query.max_age + GRACE, truth
    assert truth["delivered_age_max"] <= config.callback.max_age + GRACE, truth
    lost = sum(counters[name] for name in UNDELIVERED) + counters["maybe_paid"] + record.lane.in_flight()
    assert truth["paid"] <= truth["keys_delivered"] + truth["paid_cut_off"] + lost, truth  # 4
    assert truth["paid_again"] <= counters["maybe_paid"], truth
    assert truth["concurrent_same_key_max"] <= 1, truth  # 5
    # The world may have taken what we never heard of; never the other way round.
    assert counters["delivered"] <= truth["delivered"], truth


def _check_breakers(lane: Lane, events: list[Event]) -> None:
    breaker = lane.config.breaker
    for stage in ("pull", "query", "callback"):
        mode, rung = "normal", 0
        for event in events:
            if event.kind is not Kind.BREAKER or event.stage != stage:
                continue
            before, after = event.detail["before"], event.detail["after"]
            assert before == mode, event
            assert (before, after) in BREAKER_EDGES, event
            mode = after
            if after == "open":
                assert event.detail["pause"] == min(breaker.pause * 2**rung, breaker.pause_max), event
                rung += 1
            elif after == "normal":
                rung = 0


def _check_budget(record: Record, seconds: float) -> None:
    """Of all budgets together, since the start: a burst, a flow, a share, and two for each that worked."""
    retry = record.lane.config.retry
    allowed = 0.0
    for stage in ("query", "callback"):
        open_calls = record.lane.controller.stages[stage].busy
        flow = retry.per_second * (_BURST_SECONDS + seconds)
        calls = record.calls[stage] + open_calls
        allowed += flow + retry.share * calls + 2 * record.worked[stage] + 1
    assert record.lane.controller.ledger.counters["retries"] <= allowed


# -- alerts --------------------------------------------------------------------------------------------


def _patterns() -> list[tuple[str, str, re.Pattern[str]]]:
    """Cause, edge, and what the first line of such an alert looks like; a stage is part of the cause."""
    texts, found = Texts("en"), []
    for cause in (
        *("backpressure", "drop_rate", "credit", "auth", "callback_backlog", "breaker", "clock_skew"),
        *(*ONCE, "journal"),
    ):
        for edge in ("fire", "recover"):
            if cause in ONCE and edge == "recover":
                continue
            holes = {name: f"<{name}>" for name in _HOLES}
            line = re.escape(texts.say(f"alert.{cause}.{edge}", **holes).splitlines()[0])
            line = re.sub(r"<(stage)>", r"(?P<stage>\\w+)", line)
            found.append((cause, edge, re.compile(re.sub(r"<\w+>(?!\\w)", ".+", line))))
    return found


_HOLES = (
    *("depth", "high_water", "low_water", "rate", "threshold", "delivered", "dropped", "stage", "pause"),
    *("offset", "likely", "error", "count", "recovered", "undelivered", "maybe_paid"),
)


def edges_told(alerts: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Each alert as (cause and stage, edge); a digest is several at once and is left out."""
    told = []
    patterns = _patterns()
    for alert in alerts:
        first = alert["content"].splitlines()[0]
        for cause, edge, pattern in patterns:
            if match := pattern.fullmatch(first):
                stage = match.groupdict().get("stage")
                told.append((f"{cause} {stage}" if stage else cause, edge))
                break
        else:
            assert "merged" in first, f"an alert of no known kind: {first}"
    return told


def _check_alerts(alerts: list[Mapping[str, Any]], over: bool) -> None:
    """Invariant 13."""
    for alert in alerts:
        assert len(alert["content"].encode()) <= ALERT_BYTES
        since = alert["at"]
        assert sum(since <= other["at"] < since + 60 for other in alerts) <= ALERTS_PER_MINUTE
    firing: set[str] = set()
    for cause, edge in edges_told(alerts):
        if cause.startswith(ONCE):
            continue
        assert (edge == "recover") == (cause in firing), (cause, edge, alerts)
        firing ^= {cause}
    if over:
        assert firing == set(), alerts
