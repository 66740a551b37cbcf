from typing import Any

import pytest
from control_makers import lane_config

from pipeline.control.limiter import Limiter
from pipeline.events import Bus
from pipeline.lane import Lane
from pipeline.sim.virtual import VirtualClock, run_virtual


def period(limiter: Limiter, now: float, good: int, refused: int, busy: int) -> int:
    for number in range(good + refused):
        limiter.record(number < refused, busy)
    limiter.tick(now, None)
    return limiter.limit


def test_it_begins_with_all_slots():
    assert Limiter(500, 0.0).limit == 500


def test_it_shrinks_by_half_the_share_refused():
    limiter = Limiter(500, 0.0)
    assert period(limiter, 1.0, good=60, refused=40, busy=500) == 400


def test_it_shrinks_from_what_was_used_not_from_what_was_allowed():
    limiter = Limiter(500, 0.0)
    assert period(limiter, 1.0, good=50, refused=50, busy=100) == 75


def test_everything_refused_for_ever_still_leaves_one():
    limiter = Limiter(500, 0.0)
    for second in range(1, 60):
        period(limiter, float(second), good=0, refused=10, busy=limiter.limit)
    assert limiter.limit == 1


def test_from_one_it_grows_back_to_all_and_no_further():
    limiter = Limiter(50, 0.0)
    for second in range(1, 30):
        period(limiter, float(second), good=0, refused=10, busy=1)
    limits = [period(limiter, float(s), good=10, refused=0, busy=limiter.limit) for s in range(30, 90)]
    assert limits[0] == 2
    assert limits == sorted(limits)
    assert limits[-1] == 50


def test_it_does_not_grow_while_it_is_not_used():
    limiter = Limiter(500, 0.0)
    period(limiter, 1.0, good=0, refused=10, busy=200)
    assert limiter.limit == 100
    assert period(limiter, 2.0, good=10, refused=0, busy=79) == 100
    assert period(limiter, 3.0, good=10, refused=0, busy=80) == 111


def test_silence_changes_nothing():
    limiter = Limiter(500, 0.0)
    limiter.tick(1000.0, None)
    assert limiter.limit == 500


def test_it_judges_once_a_period_and_the_period_is_the_latency():
    limiter = Limiter(100, 0.0)
    limiter.record(True, 100)
    limiter.tick(0.24, None)
    assert limiter.limit == 100
    limiter.tick(1.99, 2.0)
    assert limiter.limit == 100
    limiter.tick(2.0, 2.0)
    assert limiter.limit == 50


def test_a_period_is_a_quarter_second_at_least_and_five_seconds_at_most():
    short, long = Limiter(100, 0.0), Limiter(100, 0.0)
    for limiter in (short, long):
        limiter.record(True, 100)
    short.tick(0.25, 0.001)
    long.tick(4.99, 300.0)
    assert (short.limit, long.limit) == (50, 100)
    long.tick(5.0, 300.0)
    assert long.limit == 50


def test_it_does_not_grow_again_before_the_last_growth_can_have_shown():
    limiter = Limiter(100, 0.0)
    limiter.too_slow(10.0, 0.0)
    for second in range(1, 40):
        limiter.record(False, limiter.limit)
        limiter.tick(float(second), 20.0)
        assert limiter.limit == (10 if second < 20 else 12)


def test_calls_that_took_too_long_bring_it_down_to_what_is_finished_in_time():
    limiter = Limiter(100, 0.0)
    limiter.too_slow(37.9, 0.0)
    assert limiter.limit == 37
    limiter.too_slow(80.0, 0.0)
    assert limiter.limit == 37
    limiter.too_slow(0.0, 0.0)
    assert limiter.limit == 1


def test_what_was_refused_before_the_cut_does_not_cut_again():
    limiter = Limiter(100, 0.0)
    limiter.record(True, 100)
    limiter.too_slow(40.0, 1.0)
    limiter.tick(10.0, None)
    assert limiter.limit == 40


def test_a_period_begins_with_clean_books():
    limiter = Limiter(100, 0.0)
    period(limiter, 1.0, good=0, refused=10, busy=100)
    assert period(limiter, 2.0, good=10, refused=0, busy=1) == 50
    limiter.tick(3.0, None)
    assert limiter.limit == 50


# -- when we are the slow side ---------------------------------------------------------------------


def lagging(lag: float, latency: float | None, slots: int = 500, ticks: int = 1) -> int:
    limiter = Limiter(slots, 0.0)
    for number in range(1, ticks + 1):
        limiter.tick(number / 4, latency, lag)
    return limiter.limit


def test_calls_that_wait_mostly_for_us_are_fewer_at_once():
    assert lagging(0.006, latency=0.01) == 400
    assert lagging(0.014, latency=0.01) == 400


def test_a_loop_that_is_very_late_cuts_deeper():
    assert lagging(0.015, latency=0.01) == 250
    assert lagging(2.0, latency=0.01) == 250


@pytest.mark.parametrize(("latency", "limit"), [(0.039, 400), (0.04, 500), (0.041, 500), (30.0, 500)])
def test_calls_that_wait_mostly_for_the_far_side_are_not_fewer(latency: float, limit: int):
    assert lagging(0.01, latency) == limit


@pytest.mark.parametrize(("lag", "limit"), [(0.0, 500), (0.005, 500), (0.0051, 400)])
def test_a_loop_five_milliseconds_late_is_not_late(lag: float, limit: int):
    assert lagging(lag, latency=0.001) == limit


def test_while_nobody_knows_how_long_a_call_takes_our_own_lateness_cuts_nothing():
    assert lagging(10.0, latency=None) == 500


def test_however_late_we_are_thirty_two_calls_go_on():
    assert lagging(1.0, latency=0.01, ticks=100) == 32
    assert lagging(0.006, latency=0.01, ticks=100) == 32


def test_our_lateness_never_raises_a_limit_that_is_lower_already():
    assert lagging(1.0, latency=0.01, slots=20, ticks=10) == 20
    limiter = Limiter(500, 0.0)
    limiter.too_slow(7.0, 0.0)
    limiter.tick(1.0, 0.01, 1.0)
    assert limiter.limit == 7


def test_when_we_are_in_time_again_the_calls_grow_back():
    limiter = Limiter(500, 0.0)
    for number in range(1, 20):
        limiter.tick(number / 4, 0.01, 1.0)
    limits = []
    for number in range(20, 80):
        limiter.record(False, limiter.limit)
        limiter.tick(number / 4, 0.01, 0.001)
        limits.append(limiter.limit)
    assert limits[0] == 36
    assert limits == sorted(limits)
    assert limits[-1] == 500


def test_a_provider_that_refuses_is_heard_also_while_we_are_late():
    limiter = Limiter(500, 0.0)
    for number in range(1, 60):
        for _ in range(10):
            limiter.record(True, limiter.limit)
        limiter.tick(number / 4, 0.01, 0.02)
    assert limiter.limit < 32


def test_a_late_tick_is_judged_once_however_often_the_lane_looks_in_between():
    async def main(clock: VirtualClock) -> None:
        port: Any = None  # never opened
        lane = Lane("lane", lane_config(), port, port, port, clock, Bus())
        query = lane.controller.stages["query"]
        query.end(query.begin(clock.monotonic()), clock.monotonic(), ok=True)
        await clock.sleep(0.25 + 0.02)
        await lane._tick_once()
        assert query.limiter.limit == 250
        for _ in range(5):
            lane.tick()
        assert query.limiter.limit == 250

    run_virtual(main)
