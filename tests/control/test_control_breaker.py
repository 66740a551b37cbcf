import pytest
from control_makers import call, feed, look, mixed, tripped

from pipeline.config import BreakerConfig
from pipeline.control.breaker import Breaker, Mode
from pipeline.errors import IllegalTransition

T = 1000.25


def fresh(**config: float) -> Breaker:
    return Breaker(BreakerConfig(**config), T)


def judged(good: int, bad: int) -> Mode:
    breaker = fresh()
    mixed(breaker, T, good, bad)
    breaker.tick(T)
    return breaker.mode


def half_open(**config: float) -> Breaker:
    breaker = tripped(T, **config)
    breaker.tick(T + 10)
    assert breaker.mode is Mode.HALF_OPEN
    breaker.drain_changes()
    return breaker


def reasons(breaker: Breaker) -> list[tuple[str, str]]:
    return [(str(change.after), change.fault) for change in breaker.drain_changes()]


# -- why -------------------------------------------------------------------------------------------


def test_faults_that_move_it_are_named_by_the_last_of_them():
    breaker = fresh(trip_after=3)
    for number in range(3):
        breaker.fail(breaker.begin(T), T, f"HTTP 50{number}")
    breaker.tick(T + 10)
    for _ in range(5):
        breaker.fail(breaker.begin(T + 10), T + 10, "refused")
    assert reasons(breaker) == [("open", "HTTP 502"), ("half_open", ""), ("open", "refused")]
    breaker = fresh(trip_after=1000)
    for _ in range(100):
        breaker.fail(breaker.begin(T), T, "HTTP 500")
    breaker.tick(T)
    assert reasons(breaker) == [("degraded", "HTTP 500")]


def test_a_call_that_hangs_is_named_as_such():
    breaker = fresh(trip_after=1, slow_after=30)
    breaker.begin(T)
    look(breaker, T + 30)
    assert reasons(breaker) == [("open", "no answer within 30 s")]
    assert breaker.last_fault == ("no answer within 30 s", T + 30)


def test_a_call_from_before_the_outage_is_not_the_last_fault():
    breaker = fresh(trip_after=1)
    early = breaker.begin(T)
    breaker.fail(breaker.begin(T), T, "now")
    breaker.fail(early, T + 1, "then")
    assert breaker.last_fault == ("now", T)


# -- normal and degraded ---------------------------------------------------------------------------


def test_sixty_nine_per_cent_of_faults_stay_normal_and_seventy_degrade():
    assert judged(good=31, bad=69) is Mode.NORMAL
    assert judged(good=30, bad=70) is Mode.DEGRADED


def test_just_below_seventy_per_cent_of_many_is_still_normal():
    assert judged(good=301, bad=699) is Mode.NORMAL
    assert judged(good=300, bad=700) is Mode.DEGRADED


def test_ninety_nine_samples_are_too_few_to_judge_and_a_hundred_are_enough():
    assert judged(good=0, bad=99) is Mode.NORMAL
    assert judged(good=0, bad=100) is Mode.DEGRADED


def degraded_with(good: int, bad: int) -> Breaker:
    """Degraded a minute ago; the window now holds exactly these."""
    breaker = fresh()
    mixed(breaker, T, 0, 100)
    breaker.tick(T)
    assert breaker.mode is Mode.DEGRADED
    mixed(breaker, T + 60, good, bad)
    breaker.tick(T + 60)
    return breaker


def test_below_thirty_five_per_cent_recovers_and_at_thirty_five_does_not():
    assert degraded_with(good=651, bad=349).mode is Mode.NORMAL
    assert degraded_with(good=650, bad=350).mode is Mode.DEGRADED


def test_recovery_asks_for_no_hundred_samples():
    assert degraded_with(good=2, bad=1).mode is Mode.NORMAL
    assert degraded_with(good=1, bad=1).mode is Mode.DEGRADED


def test_an_idle_stage_recovers_when_its_window_has_emptied():
    breaker = fresh()
    mixed(breaker, T, 0, 150)
    breaker.tick(T)
    breaker.tick(T + 59)
    assert breaker.mode is Mode.DEGRADED
    breaker.tick(T + 60)
    assert breaker.mode is Mode.NORMAL
    assert [c.why for c in breaker.drain_changes()] == ["100% faults", "idle"]


def test_faults_older_than_the_window_do_not_degrade():
    breaker = fresh()
    mixed(breaker, T, 0, 60)
    mixed(breaker, T + 60, 0, 60)
    breaker.tick(T + 60)
    assert (breaker.window.total, breaker.mode) == (60, Mode.NORMAL)


# -- open ------------------------------------------------------------------------------------------


def test_one_hundred_and_ninety_nine_in_a_row_do_not_trip_and_two_hundred_do():
    breaker = fresh()
    feed(breaker, T, bad=199)
    assert breaker.mode is Mode.NORMAL
    assert breaker.admits()
    feed(breaker, T, bad=1)
    assert breaker.mode is Mode.OPEN
    assert not breaker.admits()


def test_one_good_answer_begins_the_row_anew():
    breaker = fresh()
    feed(breaker, T, bad=199, good=1)
    feed(breaker, T, bad=199)
    assert breaker.mode is Mode.NORMAL
    assert breaker.consecutive_faults == 199


def test_it_trips_from_degraded_too():
    breaker = fresh()
    feed(breaker, T, bad=150)
    breaker.tick(T)
    feed(breaker, T, bad=50)
    changes = [(c.before, c.after) for c in breaker.drain_changes()]
    assert changes == [(Mode.NORMAL, Mode.DEGRADED), (Mode.DEGRADED, Mode.OPEN)]


def test_five_hundred_calls_in_flight_at_an_outage_are_one_trip_not_two():
    breaker = fresh()
    flight = [breaker.begin(T) for _ in range(500)]
    for number, issued in enumerate(flight):
        breaker.fail(issued, T + number * 0.05)
    opened = [c for c in breaker.drain_changes() if c.after is Mode.OPEN]
    assert [c.pause for c in opened] == [10]
    assert breaker.consecutive_faults == 200


def test_what_began_before_the_outage_says_nothing_after_it_be_it_good_or_bad():
    breaker = fresh()
    late_good = [breaker.begin(T) for _ in range(20)]
    late_bad = [breaker.begin(T) for _ in range(20)]
    feed(breaker, T, bad=200)
    breaker.tick(T + 10)
    before = (breaker.window.total, breaker.window.marked)
    for issued in late_good:
        breaker.succeed(issued, T + 10)
    for issued in late_bad:
        breaker.fail(issued, T + 10)
    assert breaker.mode is Mode.HALF_OPEN
    assert (breaker.window.total, breaker.window.marked, breaker.consecutive_faults) == (*before, 200)


def test_the_row_of_faults_stands_until_the_trials_are_good():
    breaker = tripped(T)
    assert breaker.consecutive_faults == 200
    breaker.tick(T + 10)
    feed(breaker, T + 10, bad=4)
    assert breaker.consecutive_faults == 204
    feed(breaker, T + 10, good=6)
    assert (breaker.mode, breaker.consecutive_faults) == (Mode.DEGRADED, 0)


def test_a_last_bad_trial_is_not_held_against_the_recovered():
    breaker = half_open(trip_after=3)
    feed(breaker, T + 11, good=3)
    feed(breaker, T + 11, bad=2)
    breaker.tick(T + 21)
    assert breaker.mode is Mode.DEGRADED
    feed(breaker, T + 21, bad=2)
    assert breaker.mode is Mode.DEGRADED


def test_the_pause_lasts_ten_seconds_to_the_moment_and_counts_down():
    breaker = tripped(T)
    assert breaker.open_for(T) == 10
    breaker.tick(T + 9.99)
    assert breaker.mode is Mode.OPEN
    assert breaker.open_for(T + 9.5) == pytest.approx(0.5)
    assert breaker.open_for(T + 11) == 0
    breaker.tick(T + 10)
    assert breaker.mode is Mode.HALF_OPEN
    assert breaker.open_for(T + 10) == 0


def test_pauses_are_ten_twenty_forty_sixty_sixty_and_ten_again_after_normal():
    breaker, now, pauses = fresh(), T, []
    feed(breaker, now, bad=200)
    for _ in range(5):
        pause = breaker.open_for(now)
        pauses.append(pause)
        now += pause
        breaker.tick(now)
        feed(breaker, now, bad=5)
    assert pauses == [10, 20, 40, 60, 60]
    now += 60
    breaker.tick(now)
    feed(breaker, now, good=10)
    assert breaker.mode is Mode.DEGRADED
    breaker.tick(now + 60)
    assert breaker.mode is Mode.NORMAL
    feed(breaker, now + 60, bad=200)
    assert breaker.open_for(now + 60) == 10


def test_an_outage_that_returns_before_normal_goes_on_up_the_ladder():
    breaker = half_open()
    feed(breaker, T + 10, good=6)
    assert breaker.mode is Mode.DEGRADED
    feed(breaker, T + 11, bad=200)
    assert breaker.open_for(T + 11) == 20


def test_a_configured_pause_and_its_maximum_are_obeyed():
    breaker = tripped(T, pause=7, pause_max=20)
    pauses = [c.pause for c in breaker.drain_changes()]
    now = T
    for _ in range(3):
        now += 20
        breaker.tick(now)
        feed(breaker, now, bad=5)
        pauses += [c.pause for c in breaker.drain_changes() if c.after is Mode.OPEN]
    assert pauses == [7, 14, 20, 20]


def test_tripping_an_open_breaker_changes_nothing():
    breaker = tripped(T)
    breaker.drain_changes()
    breaker.trip(T + 5, "again")
    assert breaker.drain_changes() == []
    assert breaker.open_for(T + 5) == 5


def test_a_trip_from_outside_takes_a_rung_like_any_other():
    breaker = fresh()
    breaker.trip(T, "drop rate 15.0%")
    assert [(c.why, c.pause) for c in breaker.drain_changes()] == [("drop rate 15.0%", 10)]
    breaker.tick(T + 10)
    breaker.trip(T + 10, "drop rate 17.0%")
    assert breaker.open_for(T + 10) == 20


# -- half open -------------------------------------------------------------------------------------


def test_ten_trials_are_let_through_and_no_eleventh():
    breaker = half_open()
    for _ in range(10):
        assert breaker.admits()
        breaker.begin(T + 10)
    assert not breaker.admits()


def test_most_trials_good_is_degraded():
    breaker = half_open()
    feed(breaker, T + 10, bad=4, good=5)
    assert breaker.mode is Mode.HALF_OPEN
    feed(breaker, T + 10, good=1)
    assert breaker.mode is Mode.DEGRADED


def test_half_of_the_trials_bad_is_open_again_and_longer():
    breaker = half_open()
    feed(breaker, T + 10, bad=4)
    feed(breaker, T + 10, good=5)
    assert breaker.mode is Mode.HALF_OPEN
    feed(breaker, T + 10, bad=1)
    assert breaker.mode is Mode.OPEN
    assert breaker.open_for(T + 10) == 20


def test_one_trial_is_enough_where_one_is_configured():
    for ok, mode in ((True, Mode.DEGRADED), (False, Mode.OPEN)):
        breaker = half_open(trials=1)
        call(breaker, T + 10, ok)
        assert breaker.mode is mode


def test_a_few_good_trials_are_enough_once_no_more_come_for_as_long_as_the_pause():
    breaker = half_open()
    feed(breaker, T + 11, good=3)
    breaker.tick(T + 20.75)
    assert breaker.mode is Mode.HALF_OPEN
    breaker.tick(T + 21)
    assert breaker.mode is Mode.DEGRADED
    assert breaker.drain_changes()[0].why == "3 of 3 trials good"


def test_a_few_bad_trials_open_it_again_and_longer_once_no_more_come():
    breaker = half_open()
    breaker.fail(breaker.begin(T + 11), T + 11, "refused")
    call(breaker, T + 11, ok=True)
    breaker.tick(T + 21)
    assert (breaker.mode, breaker.open_for(T + 21)) == (Mode.OPEN, 20)
    assert reasons(breaker) == [("open", "refused")]


def test_a_trial_still_under_way_is_waited_for():
    breaker = half_open()
    feed(breaker, T + 11, good=3)
    breaker.begin(T + 11)
    breaker.tick(T + 25)
    assert breaker.mode is Mode.HALF_OPEN


def test_half_open_with_nothing_to_try_ends_when_the_window_has_emptied():
    breaker = half_open()
    breaker.tick(T + 59)
    assert breaker.mode is Mode.HALF_OPEN, "the faults before the pause still count"
    breaker.tick(T + 61)
    assert breaker.mode is Mode.NORMAL
    assert [change.why for change in breaker.drain_changes()] == ["idle", "idle"]


def test_trials_that_never_return_count_as_bad_after_thirty_seconds():
    breaker = half_open()
    trials = [breaker.begin(T + 10) for _ in range(10)]
    look(breaker, T + 39.99)
    assert breaker.mode is Mode.HALF_OPEN
    look(breaker, T + 40)
    assert breaker.mode is Mode.OPEN
    assert breaker.open_for(T + 40) == 20
    for issued in trials:
        breaker.succeed(issued, T + 41)
    assert breaker.mode is Mode.OPEN


def test_a_trial_that_says_nothing_gives_its_place_to_another():
    breaker = half_open()
    trials = [breaker.begin(T + 10) for _ in range(10)]
    breaker.forget(trials[0])
    assert breaker.admits()
    breaker.begin(T + 10)
    assert not breaker.admits()


def test_an_old_call_that_says_nothing_gives_no_trial_place_away():
    breaker = fresh()
    old = breaker.begin(T)
    feed(breaker, T, bad=200)
    breaker.tick(T + 10)
    for _ in range(10):
        breaker.begin(T + 10)
    breaker.forget(old)
    assert not breaker.admits()


def test_a_probe_that_began_while_open_and_says_nothing_gives_no_trial_place_away():
    breaker = tripped(T)
    probe = breaker.begin(T + 1)
    breaker.tick(T + 10)
    for _ in range(10):
        breaker.begin(T + 10)
    breaker.forget(probe)
    assert not breaker.admits()


def test_tripped_means_open_or_not_yet_known_to_be_well():
    assert not fresh().is_tripped
    breaker = tripped(T)
    assert breaker.is_tripped
    breaker.tick(T + 10)
    assert breaker.is_tripped
    feed(breaker, T + 10, good=6)
    assert not breaker.is_tripped


def test_trials_of_the_last_outage_do_not_decide_this_one():
    breaker = half_open()
    left_over = [breaker.begin(T + 10) for _ in range(5)]
    feed(breaker, T + 10, bad=5)
    look(breaker, T + 30)
    for issued in left_over:
        breaker.fail(issued, T + 30)
    assert breaker.mode is Mode.HALF_OPEN
    feed(breaker, T + 30, good=6)
    assert breaker.mode is Mode.DEGRADED


def test_trials_still_out_when_the_matter_is_decided_are_plain_samples():
    breaker = half_open()
    trials = [breaker.begin(T + 10) for _ in range(10)]
    for issued in trials[:6]:
        breaker.succeed(issued, T + 11)
    for issued in trials[6:]:
        breaker.fail(issued, T + 12)
    assert breaker.mode is Mode.DEGRADED
    assert breaker.consecutive_faults == 4


def test_two_hundred_in_a_row_are_no_rule_of_half_open():
    breaker = half_open(trip_after=3)
    feed(breaker, T + 10, bad=4)
    assert breaker.mode is Mode.HALF_OPEN


# -- slow calls ------------------------------------------------------------------------------------


def test_a_hang_is_one_fault_after_thirty_seconds_and_stays_one_when_it_ends():
    breaker = fresh()
    issued = breaker.begin(T)
    look(breaker, T + 29.99)
    assert breaker.window.total == 0
    look(breaker, T + 30)
    assert (breaker.window.total, breaker.window.marked) == (1, 1)
    look(breaker, T + 31)
    breaker.succeed(issued, T + 32)
    assert (breaker.window.total, breaker.window.marked, breaker.consecutive_faults) == (1, 1, 1)


def test_two_hundred_hanging_calls_open_the_breaker_though_none_has_returned():
    breaker = fresh()
    for _ in range(200):
        breaker.begin(T)
    look(breaker, T + 30)
    assert breaker.mode is Mode.OPEN


def test_a_look_at_slow_calls_says_how_many_have_become_slow_since_the_last():
    breaker = fresh()
    for began in (T, T, T + 5):
        breaker.begin(began)
    assert [breaker.count_slow_calls(T + s) for s in (29, 30, 31, 35, 60)] == [0, 2, 0, 1, 0]


def test_a_young_call_is_not_slow_because_an_older_one_is():
    breaker = fresh()
    breaker.begin(T)
    breaker.begin(T + 1)
    look(breaker, T + 30)
    assert breaker.window.total == 1


def test_a_pass_given_back_twice_counts_once():
    breaker = fresh()
    issued = breaker.begin(T)
    breaker.fail(issued, T)
    breaker.fail(issued, T)
    breaker.succeed(issued, T)
    assert (breaker.window.total, breaker.consecutive_faults) == (1, 1)


def test_a_call_that_says_nothing_is_no_sample():
    breaker = fresh()
    breaker.forget(breaker.begin(T))
    look(breaker, T + 40)
    assert breaker.window.total == 0


# -- the machine -----------------------------------------------------------------------------------


def test_an_edge_that_is_not_drawn_raises():
    breaker = fresh()
    with pytest.raises(IllegalTransition, match="no way from normal to half_open"):
        breaker._move(Mode.HALF_OPEN, "a bug")


def test_changes_are_handed_out_once():
    breaker = tripped(T)
    assert breaker.changed
    assert len(breaker.drain_changes()) == 1
    assert not breaker.changed
    assert breaker.drain_changes() == []
