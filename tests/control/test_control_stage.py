from collections import deque

import pytest
from control_makers import hold_of, lane_config

from pipeline.control.breaker import Mode, Pass
from pipeline.control.gate import Reason
from pipeline.control.stage import StageControl
from pipeline.logs import register_secret

T = 100.5


def stage_of(slots: int = 3, **sections: object) -> StageControl:
    return StageControl("query", slots, lane_config(**sections), T)


def test_no_more_calls_start_than_there_are_slots():
    stage = stage_of(slots=2)
    first = stage.begin(T)
    assert stage.may_start()
    stage.begin(T)
    assert not stage.may_start()
    stage.end(first, T, ok=True)
    assert stage.may_start()


def test_nothing_starts_behind_a_hold_or_an_open_breaker():
    stage = stage_of()
    stage.gate.hold(hold_of(Reason.MANUAL))
    assert not stage.may_start()
    stage.gate.release(Reason.MANUAL)
    assert stage.may_start()
    stage.breaker.trip(T, "test")
    assert not stage.may_start()


def test_good_bad_and_unsaid_are_three_different_things():
    stage = stage_of()
    stage.end(stage.begin(T), T + 1, ok=True)
    stage.end(stage.begin(T), T + 1, ok=False)
    stage.end_unsaid(stage.begin(T), T + 1)
    assert stage.busy == 0
    assert (stage.breaker.window.total, stage.breaker.window.marked) == (2, 1)
    stage.tick(T + 1)
    assert stage.meter.total == 3


def test_only_good_calls_tell_how_long_a_call_takes():
    stage = stage_of()
    assert stage.median == 0.0
    stage.end(stage.begin(T), T + 50, ok=False)
    stage.end(stage.begin(T), T + 2, ok=True)
    stage.end_unsaid(stage.begin(T), T + 90)
    stage.tick(T + 2)
    assert stage.median == pytest.approx(2.0, rel=0.05)


def test_the_median_is_unknown_again_when_nothing_has_come_back_for_a_minute():
    stage = stage_of()
    stage.end(stage.begin(T), T + 2, ok=True)
    stage.tick(T + 2)
    stage.tick(T + 200)
    assert stage.median == 0.0


def test_a_hanging_call_is_a_fault_after_slow_after_and_still_occupies_its_slot():
    stage = stage_of()
    issued = stage.begin(T)
    stage.tick(T + 29.9)
    assert stage.breaker.window.marked == 0
    stage.tick(T + 30)
    assert (stage.breaker.window.marked, stage.busy) == (1, 1)
    stage.end(issued, T + 40, ok=True)
    assert (stage.breaker.window.total, stage.busy) == (1, 0)


def test_slow_calls_keep_their_slots_and_leave_the_others_what_is_finished_in_time():
    stage = stage_of(slots=500)
    for _ in range(150):
        stage.begin(T)
    for _ in range(240):
        stage.end(stage.begin(T + 29), T + 29, ok=True)
    stage.tick(T + 29.9)
    assert stage.limiter.limit == 500
    stage.tick(T + 30)
    assert stage.limiter.limit - 150 == 96  # 240 a minute, 30 s each, four fifths of that


def test_a_provider_that_lets_calls_wait_is_given_no_more_than_it_finishes_in_time():
    """Four a second, one after the other: 120 at once are finished in 30 s each, 400 are not."""
    stage, waiting, now = stage_of(slots=400, breaker={"trip_after": 100_000}), deque[Pass](), T
    for _ in range(2400):
        while stage.may_start():
            waiting.append(stage.begin(now))
        now += 0.25
        stage.end(waiting.popleft(), now, ok=True)
        stage.tick(now)
        stage.gate.set_slots(min(400, stage.limiter.limit))
    assert 80 <= stage.busy <= 130
    assert now - waiting[0].began <= 33
    assert stage.breaker.mode is Mode.NORMAL


def quiet_with_hanging(number: int) -> StageControl:
    """A stage with nothing else to do, in which that many calls have hung for a minute."""
    stage = stage_of(slots=500)
    for _ in range(number):
        stage.begin(T)
    for second in range(1, 61):
        stage.tick(T + second)
        stage.gate.set_slots(min(500, stage.limiter.limit))
    assert stage.breaker.mode is Mode.NORMAL
    return stage


def test_one_hanging_call_on_a_quiet_stage_does_not_stop_the_others():
    assert quiet_with_hanging(1).may_start()


def test_ten_hanging_calls_on_a_quiet_stage_do_not_stop_the_others():
    assert quiet_with_hanging(10).may_start()


def test_calls_that_hang_through_an_outage_hold_no_slot_after_it():
    stage = stage_of(slots=300)
    flight = [stage.begin(T) for _ in range(300)]
    stage.tick(T + 30)
    assert stage.breaker.mode is Mode.OPEN
    stage.tick(T + 40)
    assert (stage.busy, stage.hung) == (0, 300)
    assert stage.may_start()
    for issued in flight:
        stage.end(issued, T + 41, ok=False)
    assert (stage.busy, stage.hung) == (0, 0)


def test_a_call_counts_where_it_began_before_or_after_the_breaker_opened():
    stage = stage_of(slots=300)
    old = [stage.begin(T) for _ in range(5)]
    stage.breaker.trip(T + 1, "test")
    stage.tick(T + 11)
    new = [stage.begin(T + 11) for _ in range(3)]
    assert (stage.busy, stage.hung) == (3, 5)
    stage.end(old.pop(), T + 12, ok=True)
    stage.end_unsaid(old.pop(), T + 12)
    assert (stage.busy, stage.hung) == (3, 3)
    stage.end(new.pop(), T + 12, ok=True)
    assert (stage.busy, stage.hung) == (2, 3)
    stage.breaker.trip(T + 13, "test")
    stage.end(new.pop(), T + 13, ok=True)
    assert (stage.busy, stage.hung) == (0, 4)
    for issued in old + new:
        stage.end(issued, T + 14, ok=False)
    assert (stage.busy, stage.hung) == (0, 0)


def test_the_call_whose_fault_opens_the_breaker_is_over_and_does_not_hang():
    stage = stage_of(slots=300, breaker={"trip_after": 3})
    flight = [stage.begin(T) for _ in range(5)]
    for issued in flight[:3]:
        stage.end(issued, T + 1, ok=False)
    assert stage.breaker.mode is Mode.OPEN
    stage.tick(T + 1)
    assert (stage.busy, stage.hung) == (0, 2)


def test_what_hung_calls_bring_back_is_no_evidence_but_counts_as_ended():
    stage = stage_of(slots=300)
    flight = [stage.begin(T) for _ in range(250)]
    stage.breaker.trip(T + 1, "test")
    stage.tick(T + 11)
    for issued in flight:
        stage.end(issued, T + 12, ok=False, throttled=True)
    stage.tick(T + 12)
    assert stage.breaker.mode is Mode.HALF_OPEN
    assert stage.breaker.window.total == 0
    assert stage.limiter.limit == 300
    assert stage.meter.total == 250


def test_without_a_new_opening_nothing_is_written_off():
    stage = stage_of(slots=300)
    for _ in range(20):
        stage.begin(T)
    for second in range(1, 20):
        stage.tick(T + second)
    assert (stage.busy, stage.hung) == (20, 0)


@pytest.mark.parametrize("moment", ["may_start", "begin", "tick"])
def test_an_opened_breaker_is_noticed_by_whoever_looks_first(moment: str):
    stage = stage_of(slots=300)
    for _ in range(20):
        stage.begin(T)
    stage.breaker.trip(T + 1, "test")
    stage.breaker.tick(T + 11)
    if moment == "may_start":
        assert stage.may_start()
    elif moment == "begin":
        stage.end_unsaid(stage.begin(T + 11), T + 11)
    else:
        stage.tick(T + 11)
    assert (stage.busy, stage.hung) == (0, 20)


def test_calls_from_before_the_outage_that_grow_slow_after_it_say_nothing_about_now():
    stage = stage_of(slots=500)
    flight = [stage.begin(T) for _ in range(300)]
    stage.breaker.trip(T + 1, "test")
    stage.tick(T + 11)
    for _ in range(6):
        stage.end(stage.begin(T + 11), T + 11, ok=True)
    assert stage.breaker.mode is Mode.DEGRADED
    stage.tick(T + 30)
    assert stage.limiter.limit == 500
    for issued in flight:
        stage.end(issued, T + 31, ok=False)
    for _ in range(5):
        stage.begin(T + 31)
    stage.tick(T + 61)
    assert stage.limiter.limit == 5 + 122  # 306 ended in the last minute: 153 in 30 s, four fifths of that


def test_as_many_rounds_of_trials_may_hang_when_a_round_has_become_larger():
    stage, now = stage_of(slots=20), T
    stage.breaker.config = lane_config(breaker={"trials": 100, "trip_after": 20}).breaker
    rounds = 0
    for _ in range(1000):
        began = 0
        while stage.may_start():
            stage.begin(now)
            began += 1
        rounds += began > 20
        now += 1.0
        stage.tick(now)
        stage.gate.set_slots(100 if stage.breaker.mode is Mode.HALF_OPEN else 20)
    assert rounds >= 10


def test_calls_that_hang_are_bounded_however_long_the_outage():
    stage, now = stage_of(slots=300), T
    began = 0
    for _ in range(2000):
        while stage.may_start():
            stage.begin(now)
            began += 1
        now += 1.0
        stage.tick(now)
    # as many as there are slots, ten rounds of ten trials, and the round that was let begin just before
    assert 300 + 10 * 10 <= began < 300 + 11 * 10


def test_ten_hanging_trials_do_not_keep_a_breaker_half_open_for_ever():
    stage = stage_of(slots=500)
    stage.breaker.trip(T, "test")
    stage.tick(T + 10)
    while stage.may_start():
        stage.begin(T + 10)
    assert stage.busy == 10
    stage.tick(T + 40)
    assert stage.breaker.mode is Mode.OPEN


def test_being_told_too_much_shrinks_the_limit():
    stage = stage_of(slots=100)
    flight = [stage.begin(T) for _ in range(100)]
    for number, issued in enumerate(flight):
        stage.end(issued, T, ok=number >= 50, throttled=number < 50)
    stage.tick(T + 1)
    assert stage.limiter.limit == 75


def test_the_status_has_the_shape_of_the_contract():
    stage = stage_of(breaker={"trip_after": 3})
    assert stage.status(Mode.NORMAL, T)["last_fault"] is None
    for ok in (True, False, False):
        stage.end(stage.begin(T), T + 1, ok=ok, why="" if ok else "HTTP 500")
    stage.tick(T + 1)
    status = stage.status(Mode.NORMAL, T + 3)
    assert status == {
        "mode": "normal",
        "slots": 3,
        "busy": 0,
        "hung": 0,
        "rate_per_min": 3,
        "window": {"total": 3, "faults": 2, "fault_rate": 0.6667},
        "consecutive_faults": 2,
        "last_fault": {"why": "HTTP 500", "ago": 2.0},
        "open_for": 0.0,
        "latency": {name: pytest.approx(1.0, rel=0.05) for name in ("p50", "p95", "p99")},
    }
    stage.end(stage.begin(T), T + 1, ok=False)
    assert stage.status(Mode.OPEN, T + 4)["open_for"] == 7.0


def test_a_reason_is_one_short_line_without_secrets():
    register_secret("canary-secret")
    stage = stage_of()
    told = "no\n\tconnection with canary-secret, Bearer canary-token " + "x" * 5000
    stage.end(stage.begin(T), T, ok=False, why=told)
    why = stage.status(Mode.NORMAL, T)["last_fault"]["why"]
    assert why.startswith("no connection with ***, Bearer *** xxx")
    assert len(why) == 200


def test_latency_is_null_while_nothing_was_measured():
    assert stage_of().status(Mode.NORMAL, T)["latency"] == {"p50": None, "p95": None, "p99": None}
