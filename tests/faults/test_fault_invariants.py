"""The checks themselves: what breaks an invariant is found."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.clock import SystemClock
from pipeline.config import LaneConfig, RetryConfig
from pipeline.events import Bus, Event, Kind, Step
from pipeline.lane import Lane
from tests.faults.invariants import (
    QUERY,
    Record,
    _check_alerts,
    _check_breakers,
    _check_budget,
    _check_ends,
    edges_told,
    secrets_in,
)

FIRE = "⚠️ Breaker open for query, pausing 10 s\nTries again by itself\nLane: shopee"
RECOVER = "✅ Breaker for query has closed\nLane: shopee"


def alerts(*contents: str, apart: float = 1.0) -> list[dict[str, Any]]:
    return [{"at": number * apart, "content": content} for number, content in enumerate(contents)]


async def record() -> Record:
    nobody: Any = None
    config = LaneConfig(source="sim", provider="sim", sink="sim", retry=RetryConfig(per_second=1))
    return Record(Lane("shopee", config, nobody, nobody, nobody, SystemClock(), Bus()))


def step(trace: str, stage: str, what: str) -> Step:
    return Step(0.0, "shopee", stage, trace, "key", what, 1.0, 1)


def test_the_edges_of_an_alert_are_read_from_its_text() -> None:
    assert edges_told(alerts(FIRE, RECOVER)) == [("breaker query", "fire"), ("breaker query", "recover")]
    with pytest.raises(AssertionError, match="no known kind"):
        edges_told(alerts("something else"))


@pytest.mark.parametrize(
    "wrong",
    [
        alerts(RECOVER),
        alerts(FIRE, FIRE),
        alerts(FIRE),
        alerts("⚠️ " + "x" * 2048),
        alerts(*[FIRE, RECOVER] * 11),
    ],
    ids=["an end without a beginning", "twice", "no end", "too long", "too many"],
)
def test_alerts_that_are_not_in_pairs_or_too_many_or_too_long_are_found(wrong: list[dict[str, Any]]) -> None:
    with pytest.raises(AssertionError):
        _check_alerts(wrong, over=True)


def test_alerts_as_they_should_be_are_let_pass() -> None:
    _check_alerts(alerts(*[FIRE, RECOVER] * 30, apart=6.0), over=True)
    _check_alerts(alerts(FIRE), over=False)


@pytest.mark.parametrize(
    "moves",
    [
        [("normal", "half_open", 0)],
        [("normal", "open", 20.0)],
        [("degraded", "normal", 0)],
        [("normal", "open", 10.0), ("open", "half_open", 0), ("half_open", "open", 10.0)],
    ],
    ids=["no such edge", "wrong rung", "another beginning", "the same rung again"],
)
async def test_a_breaker_off_its_edges_or_its_ladder_is_found(moves: list[tuple[str, str, float]]) -> None:
    events = [
        Event(0.0, "shopee", Kind.BREAKER, stage="query", detail={"before": a, "after": b, "pause": pause})
        for a, b, pause in moves
    ]
    with pytest.raises(AssertionError):
        _check_breakers((await record()).lane, events)


async def test_a_trace_that_ends_twice_is_found() -> None:
    seen = await record()
    for _ in range(2):
        seen.add(step("one", "callback", "delivered"))
    with pytest.raises(AssertionError):
        _check_ends(seen)


async def test_retries_beyond_their_budget_are_found_and_those_that_worked_are_not_held_against_them() -> (
    None
):
    seen = await record()
    seen.lane.controller.ledger.count("retries", 100)
    for number in range(50):
        seen.add(step(str(number), "query", "fault"))
    with pytest.raises(AssertionError):
        _check_budget(seen, 10.0)
    for number in range(50):
        seen.add(step(str(number), "query", "answered"))
    _check_budget(seen, 10.0)


async def test_a_lost_ticket_and_a_queue_over_its_mark_are_found() -> None:
    seen = await record()
    seen.look()
    seen.lane.controller.ledger.count("pulled")
    with pytest.raises(AssertionError):
        seen.look()
    seen = await record()
    seen.lane.controller.room.reserved = 1001
    with pytest.raises(AssertionError):
        seen.look()


def test_a_secret_is_found_wherever_it_is() -> None:
    assert secrets_in({"status": "all is well"}) == []
    (found,) = secrets_in({"status": f"the token is {QUERY}", "events": ""})
    assert "status" in found
