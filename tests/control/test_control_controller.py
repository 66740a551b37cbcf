import pytest
from control_makers import EMPTY, LATE_NAMES, Desk, feed, lane_config, mixed, ticket

from pipeline.control.breaker import Mode
from pipeline.control.controller import BACKLOG_CAUTION, Snapshot
from pipeline.control.drop_rate import Level
from pipeline.control.gate import Reason
from pipeline.events import Kind
from pipeline.events import Level as EventLevel
from pipeline.ticket import Outcome

FULL_SPEED = {"pull": 1250, "query": 500, "callback": 300}
MB_64 = 67_108_864
#: What is enough to hold queries while the callback is out of order.
CAUTIOUS, CAUTIOUS_BYTES = 2000 // BACKLOG_CAUTION, MB_64 // BACKLOG_CAUTION


def backlog(count: int = 0, size: int = 0) -> Snapshot:
    return Snapshot(0, count, size)


# -- backpressure ----------------------------------------------------------------------------------


def at_full_mark() -> Desk:
    """A lane that has shown that it can serve 800 in time."""
    desk = Desk()
    room = desk.controller.room
    room.settle(room.reserve(0), 100, desk.clock.time)
    for _ in range(5000):
        room.answered()
    desk.tick()
    assert room.mark == 800
    # few tickets a pull, as a busy upstream hands them out: a pull needs little room
    for _ in range(60):
        room.settle(room.reserve(0), 1, desk.clock.time)
    desk.tick()
    return desk


def stuck_at(desk: Desk, depth: int) -> None:
    """The mark is where the queue stands, and nothing is learned anew."""
    desk.controller.room.mark = depth
    desk.controller.room._first_pull = None
    desk.deep(depth)


def test_backpressure_holds_the_pull_at_eight_hundred_and_not_at_seven_hundred_and_ninety_nine():
    desk = at_full_mark()
    desk.deep(799)
    assert desk.holds("pull") == set()
    desk.deep(800)
    assert desk.holds("pull") == {"backpressure"}
    assert desk.holds("query") == set()


def test_backpressure_also_holds_when_a_pull_finds_no_room_to_reserve():
    desk = at_full_mark()
    stuck_at(desk, 300)
    assert desk.holds("pull") == set()
    desk.deep(300, after=1.99)
    assert desk.holds("pull") == set()
    desk.deep(300, after=0.02)
    assert desk.holds("pull") == {"backpressure"}


@pytest.mark.parametrize("reason", [Reason.CREDIT, Reason.MANUAL, Reason.DROP_RATE])
def test_a_pull_that_is_held_by_something_else_looks_for_no_room(reason: Reason):
    desk = at_full_mark()
    desk.controller.hold(("pull",), reason, "test", "why", "operator")
    stuck_at(desk, 300)
    for _ in range(40):
        desk.deep(300)
    assert desk.edges(Reason.BACKPRESSURE) == []


def test_a_full_queue_in_which_pulls_still_find_room_now_and_then_is_not_held():
    desk = at_full_mark()
    stuck_at(desk, 300)
    for _ in range(40):
        desk.controller.room.give_back(desk.controller.room.reserve(200))
        desk.deep(300)
    assert desk.edges(Reason.BACKPRESSURE) == []


def test_a_queue_below_the_low_water_is_never_held_however_low_the_mark():
    desk = at_full_mark()
    stuck_at(desk, 50)
    for _ in range(40):
        desk.deep(99)
    assert desk.edges(Reason.BACKPRESSURE) == []


def test_backpressure_ends_below_a_hundred_and_not_at_a_hundred():
    desk = Desk()
    desk.deep(800)
    desk.deep(100)
    assert desk.holds("pull") == {"backpressure"}
    desk.deep(99)
    assert desk.holds("pull") == set()


def test_backpressure_is_announced_once_and_its_end_once_with_the_numbers():
    desk = Desk()
    for depth in (850, 900, 800, 500, 101, 99, 50, 0):
        desk.deep(depth)
    assert desk.edges(Reason.BACKPRESSURE) == ["hold", "release"]
    held, freed = desk.of(Kind.HOLD)[0], desk.of(Kind.RELEASE)[0]
    assert (held.stage, held.detail["depth"], held.detail["high_water"]) == ("pull", 850, 800)
    assert (freed.detail["depth"], freed.detail["lasted"]) == (99, 1.2)


@pytest.mark.parametrize("depth", [0, 50, 650, 699, 700, 799, 800])
def test_at_one_depth_backpressure_does_not_flap_however_close_the_two_marks_are(depth: int):
    desk = Desk(queue={"high_water": 800, "low_water": 700})
    for _ in range(40):
        desk.deep(depth)
    assert len(desk.edges(Reason.BACKPRESSURE)) <= 1


def test_a_queue_smaller_than_one_pull_does_not_flap_either():
    desk = Desk(queue={"high_water": 50, "low_water": 10})
    for _ in range(40):
        desk.deep(0)
    assert desk.edges(Reason.BACKPRESSURE) == []
    assert desk.controller.room.reserve(0) > 0


# -- callback backlog ------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "over"), [((2000, 0), (2001, 0)), ((1, MB_64), (1, MB_64 + 1))])
def test_callback_backlog_holds_the_query_above_two_thousand_or_sixty_four_megabytes(
    at: tuple[int, int], over: tuple[int, int]
):
    desk = Desk()
    desk.tick(backlog(*at))
    assert desk.holds("query") == set()
    desk.tick(backlog(*over))
    assert desk.holds("query") == {"callback_backlog"}
    assert desk.holds("pull") == desk.holds("callback") == set()


@pytest.mark.parametrize(("half", "below"), [((1000, 0), (999, 0)), ((1, MB_64 // 2), (1, MB_64 // 2 - 1))])
def test_callback_backlog_ends_below_half_and_not_at_half(half: tuple[int, int], below: tuple[int, int]):
    desk = Desk()
    desk.tick(backlog(3000, MB_64 * 2))
    desk.tick(backlog(*half))
    assert desk.holds("query") == {"callback_backlog"}
    desk.tick(backlog(*below))
    assert desk.holds("query") == set()
    assert desk.edges(Reason.CALLBACK_BACKLOG) == ["hold", "release"]


def test_callback_backlog_needs_both_below_half():
    desk = Desk()
    desk.tick(backlog(2001, MB_64 + 1))
    desk.tick(backlog(10, MB_64 - 1))
    desk.tick(backlog(1999, 10))
    assert desk.holds("query") == {"callback_backlog"}
    desk.tick(backlog(999, MB_64 // 2 - 1))
    assert desk.holds("query") == set()


def test_the_backlog_is_over_only_if_it_held():
    desk = Desk()
    assert not desk.controller.backlog_is_over(0, 0)
    desk.tick(backlog(2001))
    assert desk.controller.backlog_is_over(0, 0)


@pytest.mark.parametrize(
    ("count", "size", "over"),
    [
        (999, 0, True),
        (1000, 0, False),
        (0, MB_64 // 2 - 1, True),
        (0, MB_64 // 2, False),
        (999, MB_64, False),
    ],
)
def test_asking_whether_the_backlog_is_over_needs_no_tick_and_changes_nothing(
    count: int, size: int, over: bool
):
    desk = Desk()
    desk.tick(backlog(2001))
    assert desk.controller.backlog_is_over(count, size) is over
    assert desk.holds("query") == {"callback_backlog"}


@pytest.mark.parametrize(
    ("at", "over"), [((CAUTIOUS, 0), (CAUTIOUS + 1, 0)), ((1, CAUTIOUS_BYTES), (1, CAUTIOUS_BYTES + 1))]
)
@pytest.mark.parametrize("mode", [Mode.OPEN, Mode.HALF_OPEN])
def test_while_nobody_takes_the_answers_a_fraction_of_the_backlog_is_the_bound(
    mode: Mode, at: tuple[int, int], over: tuple[int, int]
):
    desk = callback_in(mode)
    desk.tick(backlog(*at), after=0)
    assert desk.holds("query") == set()
    desk.tick(backlog(*over), after=0)
    assert desk.holds("query") == {"callback_backlog"}


def callback_in(mode: Mode, **breaker_config: float) -> Desk:
    desk = Desk(breaker=breaker_config)
    breaker = desk.controller.stages["callback"].breaker
    breaker.trip(desk.clock.time, "test")
    desk.tick(after=0)
    if mode is not Mode.OPEN:
        desk.tick(after=10)
    if mode is Mode.DEGRADED:
        feed(breaker, desk.clock.time, good=6)
        mixed(breaker, desk.clock.time, good=40, bad=60)
        desk.tick(after=0)
    assert breaker.mode is mode
    return desk


@pytest.mark.parametrize(
    ("mode", "highest"),
    [(Mode.OPEN, -1), (Mode.HALF_OPEN, CAUTIOUS // 2 - 1), (Mode.DEGRADED, 999), (Mode.NORMAL, 999)],
)
def test_the_backlog_is_over_below_half_of_the_bound_in_force_and_never_while_the_callback_is_open(
    mode: Mode, highest: int
):
    desk = Desk() if mode is Mode.NORMAL else callback_in(mode)
    desk.tick(backlog(2001), after=0)
    is_over = desk.controller.backlog_is_over
    assert [count for count in range(1100) if is_over(count, 0)] == list(range(highest + 1))


def test_when_the_callback_is_back_the_whole_bound_is_in_force_again():
    desk = callback_in(Mode.HALF_OPEN)
    desk.tick(backlog(900), after=0)
    assert desk.holds("query") == {"callback_backlog"}
    feed(desk.controller.stages["callback"].breaker, desk.clock.time, good=6)
    desk.tick(backlog(900), after=0)
    assert desk.holds("query") == set()
    desk.tick(backlog(2000), after=0)
    assert desk.holds("query") == set()


@pytest.mark.parametrize("stage", ["pull", "query"])
def test_another_stages_open_breaker_leaves_the_backlogs_bound_as_it_is(stage: str):
    desk = Desk()
    desk.controller.stages[stage].breaker.trip(desk.clock.time, "test")
    desk.tick(backlog(2000))
    assert "callback_backlog" not in desk.holds("query")


# -- breakers --------------------------------------------------------------------------------------


def test_an_open_breaker_holds_its_own_stage_and_lets_go_when_its_pause_ends():
    desk = Desk()
    feed(desk.controller.stages["query"].breaker, desk.clock.time, bad=200)
    desk.tick(after=0)
    assert desk.holds("query") == {"breaker"}
    assert desk.holds("pull") == desk.holds("callback") == set()
    assert desk.slots()["query"] == 0
    desk.tick(after=9.9)
    assert desk.holds("query") == {"breaker"}
    desk.tick(after=0.1)
    assert desk.holds("query") == set()
    assert desk.controller.modes["query"] is Mode.HALF_OPEN
    assert desk.slots()["query"] == 10
    assert desk.edges(Reason.BREAKER) == ["hold", "release"]


def test_every_pause_of_an_outage_is_one_pair_of_edges():
    desk = Desk()
    breaker = desk.controller.stages["callback"].breaker
    feed(breaker, desk.clock.time, bad=200)
    desk.tick(after=0)
    for pause in (10, 20, 40):
        desk.tick(after=pause)
        feed(breaker, desk.clock.time, bad=5)
        desk.tick(after=0)
    assert desk.edges(Reason.BREAKER) == ["hold", "release"] * 3 + ["hold"]
    opened = [e.detail["pause"] for e in desk.of(Kind.BREAKER) if e.detail["after"] == "open"]
    assert opened == [10, 20, 40, 60]


def test_a_degraded_query_runs_at_half_its_slots():
    desk = Desk()
    mixed(desk.controller.stages["query"].breaker, desk.clock.time, good=30, bad=70)
    desk.tick()
    assert desk.slots() == FULL_SPEED | {"query": 250}
    (event,) = desk.of(Kind.BREAKER)
    assert (event.stage, event.level, event.detail["after"]) == ("query", EventLevel.WARNING, "degraded")


def test_a_degraded_callback_slows_pull_and_query():
    desk = Desk()
    mixed(desk.controller.stages["callback"].breaker, desk.clock.time, good=30, bad=70)
    desk.tick()
    assert desk.slots() == {"pull": 250, "query": 250, "callback": 160}


def test_two_degraded_stages_are_severe():
    desk = Desk()
    for name in ("query", "callback"):
        mixed(desk.controller.stages[name].breaker, desk.clock.time, good=30, bad=70)
    desk.tick()
    assert desk.slots() == {"pull": 250, "query": 50, "callback": 20}
    desk.tick(after=60)
    assert desk.slots() == FULL_SPEED


def test_the_pace_is_never_above_what_the_far_side_can_take():
    desk = Desk()
    desk.controller.stages["query"].limiter.too_slow(42.0, desk.clock.time)
    desk.tick()
    assert desk.slots()["query"] == 42


def answered_in(desk: Desk, seconds: float) -> None:
    for stage in desk.controller.stages.values():
        for _ in range(10):
            stage.end(stage.begin(desk.clock.time - seconds), desk.clock.time, ok=True)


def late(lag: float) -> Snapshot:
    return Snapshot(0, 0, 0, lag)


def test_when_our_own_loop_is_late_pulls_and_queries_are_fewer_and_callbacks_are_not():
    desk = Desk()
    answered_in(desk, 0.01)
    desk.tick(late(0.02))
    assert desk.slots() == {"pull": 625, "query": 250, "callback": 300}
    for _ in range(20):
        desk.tick(late(0.02))
    assert desk.slots() == {"pull": 32, "query": 32, "callback": 300}


def test_a_late_loop_with_a_slow_far_side_changes_no_pace():
    desk = Desk()
    answered_in(desk, 1.0)
    for _ in range(20):
        desk.tick(late(0.2))
    assert desk.slots() == FULL_SPEED


def test_a_loop_in_time_changes_no_pace():
    desk = Desk()
    answered_in(desk, 0.01)
    for _ in range(20):
        desk.tick(late(0.004))
    assert desk.slots() == FULL_SPEED


# -- drop rate -------------------------------------------------------------------------------------


def dropped(desk: Desk, delivered: int, late: int) -> None:
    desk.finish(Outcome.DELIVERED, delivered)
    desk.finish(Outcome.QUERY_STALE, late)
    desk.tick()


def test_ten_per_cent_dropped_slow_pull_and_query_and_nine_do_not():
    desk = Desk()
    dropped(desk, 91, 9)
    assert desk.slots() == FULL_SPEED
    dropped(desk, 89, 11)
    assert desk.slots() == {"pull": 250, "query": 250, "callback": 300}
    assert desk.holds("pull") == set()


def test_fifteen_per_cent_open_the_breakers_of_pull_and_query_once():
    desk = Desk()
    dropped(desk, 85, 15)
    for _ in range(20):
        desk.tick(after=0.1)
    assert desk.holds("pull") == desk.holds("query") == {"breaker"}
    assert desk.holds("callback") == set()
    assert desk.edges(Reason.BREAKER) == ["hold", "hold"]
    for _ in range(40):
        desk.tick()
    assert desk.holds("pull") == desk.holds("query") == set()
    assert desk.controller.drop_rate.level is Level.TRIP
    assert len(desk.edges(Reason.BREAKER)) == 4


def test_a_rate_that_climbs_on_trips_again_and_one_that_stands_does_not():
    desk = Desk()
    dropped(desk, 850, 150)
    desk.tick(after=10)
    dropped(desk, 0, 10)
    assert desk.holds("pull") == set()
    dropped(desk, 0, 15)
    assert desk.holds("pull") == {"breaker"}
    pauses = [e.detail["pause"] for e in desk.of(Kind.BREAKER) if e.detail["after"] == "open"]
    assert pauses == [10, 10, 20, 20]


def test_twenty_per_cent_stop_pull_and_query_with_one_urgent_event_and_callbacks_go_on():
    desk = Desk()
    dropped(desk, 80, 20)
    for _ in range(5):
        dropped(desk, 0, 10)
    assert desk.holds("pull") >= {"drop_rate"}
    assert desk.holds("query") >= {"drop_rate"}
    assert desk.holds("callback") == set()
    assert desk.edges(Reason.DROP_RATE) == ["hold"]
    (event,) = (e for e in desk.of(Kind.HOLD) if e.detail["reason"] == "drop_rate")
    assert (event.level, event.stage) == (EventLevel.ERROR, "pull,query")
    assert event.detail | {"rate": 0.2, "delivered": 80, "dropped": 20, "threshold": 0.2} == event.detail


def test_a_hard_stop_ends_only_by_the_operator():
    desk = Desk()
    dropped(desk, 80, 20)
    desk.tick(after=100_000)
    assert desk.controller.drop_rate.level is Level.OK
    assert desk.holds("pull") == desk.holds("query") == {"drop_rate"}


def test_after_a_resume_the_same_drops_do_not_stop_it_again():
    desk = Desk()
    dropped(desk, 80, 20)
    assert desk.controller.resume("op", EMPTY) == ["drop_rate"]
    desk.tick()
    assert "drop_rate" not in desk.holds("pull") | desk.holds("query")
    desk.finish(Outcome.QUERY_STALE, 99)
    desk.tick()
    assert "drop_rate" not in desk.holds("pull")
    desk.finish(Outcome.QUERY_STALE)
    desk.tick()
    assert desk.edges(Reason.DROP_RATE) == ["hold", "release", "hold"]


@pytest.mark.parametrize("outcome", sorted(set(Outcome)))
def test_what_feeds_the_drop_rate_is_our_lateness_and_nothing_else(outcome: Outcome):
    desk = Desk()
    desk.finish(outcome, 3)
    numbers = (0, 3) if outcome in LATE_NAMES else (3, 0) if outcome is Outcome.DELIVERED else (0, 0)
    assert desk.controller.drop_rate.numbers() == numbers
    assert desk.controller.ledger.counters[outcome] == 3


# -- credit and auth -------------------------------------------------------------------------------


def refuse(desk: Desk, reason: Reason) -> bool:
    return desk.controller.hold(("pull", "query"), reason, "query", "out", "probe")


@pytest.mark.parametrize(
    ("reason", "named"), [(Reason.CREDIT, "credit_expired"), (Reason.AUTH, "auth_expired")]
)
def test_tickets_that_die_of_a_refusal_are_named_after_it_and_do_not_feed_the_drop_rate(
    reason: Reason, named: str
):
    desk = Desk()
    refuse(desk, reason)
    for outcome in (Outcome.QUEUE_EXPIRED, Outcome.QUERY_STALE, Outcome.QUERY_EXPIRED):
        desk.finish(outcome)
    assert desk.controller.ledger.counters[named] == 3
    assert desk.controller.drop_rate.numbers() == (0, 0)
    assert desk.controller.ledger.dropped == 3


def test_an_answer_not_called_back_in_time_is_not_the_accounts_fault():
    desk = Desk()
    refuse(desk, Reason.CREDIT)
    desk.finish(Outcome.CALLBACK_EXPIRED)
    assert desk.controller.ledger.counters["callback_expired"] == 1
    assert desk.controller.drop_rate.numbers() == (0, 1)


def test_tickets_grown_stale_behind_a_credit_hold_are_its_dead_even_when_found_after_its_end():
    desk = Desk()
    waiting = [ticket(trace=str(n), created=desk.clock.now() - 10) for n in range(100)]
    refuse(desk, Reason.CREDIT)
    desk.tick(after=260)
    desk.controller.release(("pull", "query"), Reason.CREDIT, "probe")
    for one in waiting:
        desk.controller.finish(one, Outcome.QUERY_STALE)
    desk.tick()
    assert desk.holds("pull") == set(), "hard-stopped by an empty account"
    assert desk.controller.ledger.counters["credit_expired"] == 100


@pytest.mark.parametrize(
    ("age_at_hold", "held_for", "named"),
    [
        (10, 260, "credit_expired"),
        (230, 12, "credit_expired"),
        (238, 4, "credit_expired"),
        (241, 4, "query_stale"),
    ],
)
def test_after_the_hold_only_those_that_would_have_been_in_time_without_it_are_its_dead(
    age_at_hold: float, held_for: float, named: str
):
    desk = Desk()
    one = ticket(created=desk.clock.now() - age_at_hold)
    refuse(desk, Reason.CREDIT)
    desk.tick(after=held_for)
    desk.controller.release(("pull", "query"), Reason.CREDIT, "probe")
    desk.tick(after=0.5)
    desk.controller.finish(one, Outcome.QUERY_STALE)
    assert desk.controller.ledger.counters[named] == 1


def test_tickets_born_after_the_hold_do_not_die_of_it():
    desk = Desk()
    refuse(desk, Reason.AUTH)
    desk.tick(after=100)
    desk.controller.release(("pull", "query"), Reason.AUTH, "probe")
    desk.tick(after=1)
    one = ticket(created=desk.clock.now())
    desk.tick(after=241)
    desk.controller.finish(one, Outcome.QUERY_STALE)
    assert desk.controller.ledger.counters["query_stale"] == 1
    assert desk.controller.drop_rate.numbers() == (0, 1)


def test_the_end_of_another_hold_is_nobodys_excuse():
    desk = Desk()
    one = ticket(created=desk.clock.now())
    refuse(desk, Reason.DROP_RATE)
    desk.tick(after=250)
    desk.controller.release(("pull", "query"), Reason.DROP_RATE, "op")
    desk.controller.finish(one, Outcome.QUERY_STALE)
    assert desk.controller.ledger.counters["query_stale"] == 1


def test_five_hundred_refusals_are_one_edge():
    desk = Desk()
    assert [refuse(desk, Reason.CREDIT) for _ in range(500)].count(True) == 1
    assert desk.edges(Reason.CREDIT) == ["hold"]
    assert desk.of(Kind.HOLD)[0].level is EventLevel.ERROR


def test_two_refusals_are_two_holds_and_both_must_end():
    desk = Desk()
    refuse(desk, Reason.CREDIT)
    refuse(desk, Reason.AUTH)
    desk.controller.release(("pull", "query"), Reason.CREDIT, "probe")
    assert desk.holds("query") == {"auth"}
    assert desk.controller.held(Reason.AUTH)
    assert not desk.controller.held(Reason.CREDIT)


def test_a_hold_that_grows_by_a_stage_names_only_the_new_one():
    desk = Desk()
    desk.controller.hold(("pull",), Reason.AUTH, "pull", "401", "probe")
    desk.controller.hold(("pull", "query"), Reason.AUTH, "query", "401", "probe")
    assert [event.stage for event in desk.of(Kind.HOLD)] == ["pull", "query"]
    desk.controller.release(("pull", "query", "callback"), Reason.AUTH, "probe")
    assert [event.stage for event in desk.of(Kind.RELEASE)] == ["pull,query"]


def test_a_hold_said_again_still_began_when_it_began():
    desk = Desk()
    refuse(desk, Reason.CREDIT)
    began = desk.clock.now()
    desk.clock.time += 300
    refuse(desk, Reason.CREDIT)
    assert desk.controller.stages["query"].gate.holds[Reason.CREDIT].since == began
    desk.controller.release(("pull", "query"), Reason.CREDIT, "probe")
    assert desk.of(Kind.RELEASE)[0].detail["lasted"] == 300


# -- operators -------------------------------------------------------------------------------------


def test_a_pause_holds_the_pull_only_and_says_who_and_why():
    desk = Desk()
    desk.controller.pause("anna", "deploy")
    assert (desk.holds("pull"), desk.holds("query"), desk.holds("callback")) == ({"manual"}, set(), set())
    hold = desk.controller.stages["pull"].gate.holds[Reason.MANUAL]
    assert (hold.by, hold.detail, hold.releases) == ("anna", "deploy", "operator")
    desk.tick(after=100_000)
    assert desk.holds("pull") == {"manual"}


def test_a_timed_pause_ends_at_its_time_and_not_before():
    desk = Desk()
    desk.controller.pause("anna", for_seconds=60)
    desk.tick(after=59.9)
    assert desk.holds("pull") == {"manual"}
    desk.tick(after=0.1)
    assert desk.holds("pull") == set()
    assert desk.edges(Reason.MANUAL) == ["hold", "release"]
    assert (
        desk.of(Kind.RELEASE)[0].detail | {"by": "its time", "lasted": 60.0}
        == desk.of(Kind.RELEASE)[0].detail
    )


def test_a_later_pause_replaces_the_time_of_the_first():
    desk = Desk()
    desk.controller.pause("anna", for_seconds=60)
    desk.controller.pause("anna", for_seconds=600)
    desk.tick(after=60)
    assert desk.holds("pull") == {"manual"}
    desk.controller.pause("anna")
    desk.tick(after=10_000)
    assert desk.holds("pull") == {"manual"}


def test_resume_releases_the_five_and_names_them_and_leaves_the_rest():
    desk = Desk()
    controller = desk.controller
    controller.pause("anna")
    for reason in (Reason.CREDIT, Reason.AUTH, Reason.DROP_RATE):
        refuse(desk, reason)
    controller.hold(("pull",), Reason.SUCCESS_LIMIT, "x", "", "")
    controller.hold(("pull", "query", "callback"), Reason.STOPPED, "x", "", "")
    controller.hold(("pull",), Reason.DRAINING, "x", "", "")
    controller.hold(("query",), Reason.BREAKER, "x", "", "")
    controller.hold(("query",), Reason.CALLBACK_BACKLOG, "x", "", "")
    released = controller.resume("bob", EMPTY, "all fine")
    assert released == ["manual", "credit", "auth", "drop_rate", "success_limit"]
    assert desk.holds("pull") == {"stopped", "draining"}
    assert desk.holds("query") == {"stopped", "breaker", "callback_backlog"}
    assert desk.holds("callback") == {"stopped"}
    assert [(e.detail["by"], e.detail["why"]) for e in desk.of(Kind.RELEASE)] == [("bob", "all fine")] * 5


def test_resume_with_nothing_to_release_says_nothing():
    desk = Desk()
    assert desk.controller.resume("bob", EMPTY) == []
    assert desk.events == []


@pytest.mark.parametrize(("depth", "released"), [(50, ["backpressure"]), (800, []), (5000, [])])
def test_resume_judges_backpressure_anew_on_the_spot(depth: int, released: list[str]):
    desk = Desk()
    desk.deep(900)
    assert desk.controller.resume("bob", Snapshot(depth, 0, 0)) == released
    assert desk.holds("pull") == (set() if released else {"backpressure"})


def test_resume_does_not_release_backpressure_that_the_next_tick_sets_again():
    desk = Desk()
    desk.deep(900)
    depth = 700  # below the high water, but above the mark
    assert desk.controller.resume("bob", Snapshot(depth, 0, 0)) == ["backpressure"]
    desk.deep(depth, after=0)
    assert desk.holds("pull") == set()


# -- success limit ---------------------------------------------------------------------------------


def test_the_success_limit_holds_the_pull_at_its_number_and_not_before():
    desk = Desk(callback={"success_limit": 10})
    desk.finish(Outcome.DELIVERED, 9)
    desk.tick()
    assert desk.holds("pull") == set()
    desk.finish(Outcome.DELIVERED)
    for _ in range(5):
        desk.tick()
    assert desk.holds("pull") == {"success_limit"}
    assert desk.edges(Reason.SUCCESS_LIMIT) == ["hold"]


def test_after_a_resume_the_success_limit_counts_from_there():
    desk = Desk(callback={"success_limit": 10})
    desk.finish(Outcome.DELIVERED, 13)
    desk.tick()
    assert desk.controller.resume("op", EMPTY) == ["success_limit"]
    desk.finish(Outcome.DELIVERED, 9)
    desk.tick()
    assert desk.holds("pull") == set()
    desk.finish(Outcome.DELIVERED)
    desk.tick()
    assert desk.holds("pull") == {"success_limit"}


def test_no_success_limit_means_none():
    desk = Desk()
    desk.finish(Outcome.DELIVERED, 5000)
    desk.tick()
    assert desk.holds("pull") == set()


def test_a_reached_success_limit_shows_since_when():
    desk = Desk(callback={"success_limit": 1})
    desk.finish(Outcome.DELIVERED)
    desk.tick()
    since = desk.controller.stages["pull"].gate.holds[Reason.SUCCESS_LIMIT].since
    desk.tick(after=100)
    assert desk.controller.stages["pull"].gate.holds[Reason.SUCCESS_LIMIT].since == since


# -- the clock -------------------------------------------------------------------------------------


def sample(desk: Desk, lag: float, times: int = 200) -> None:
    for _ in range(times):
        desk.controller.skew.sample(lag)


def test_a_small_step_of_the_wall_clock_is_taken_in_silence():
    desk = Desk()
    before = desk.clock.wall
    desk.clock.wall_step = 30.0
    desk.tick()
    assert (desk.clock.wall - before, desk.events) == (30.0, [])


def test_less_than_a_second_is_left_alone():
    desk = Desk()
    desk.clock.wall_step = 1.0
    desk.tick()
    assert desk.clock.wall_step == 1.0


def test_an_hours_step_is_said_once_and_the_old_time_kept_while_the_tickets_agree_with_it():
    desk = Desk()
    sample(desk, 5.0)
    desk.clock.wall_step = 3600.0
    for _ in range(10):
        desk.tick()
    assert desk.clock.wall_step == 3600.0
    (event,) = desk.of(Kind.CLOCK_SKEW)
    assert (event.level, event.detail["offset"]) == (EventLevel.WARNING, 3600)


def test_an_hours_step_is_adopted_once_the_tickets_agree_with_it():
    desk = Desk()
    desk.clock.wall_step = 3600.0
    desk.tick()
    sample(desk, -3590.0)
    desk.tick()
    assert desk.clock.wall_step == 0.0
    assert desk.controller.skew.judge() is None


def test_a_wrong_time_zone_is_one_event_that_names_the_offset():
    desk = Desk()
    sample(desk, 28_805.0)
    for _ in range(10):
        desk.tick()
    (event,) = desk.of(Kind.CLOCK_SKEW)
    assert (event.level, event.stage) == (EventLevel.ERROR, "pull")
    assert event.detail["likely"] == "time zone off by +8 h: check pull.timezone"


def test_a_skew_that_comes_back_is_said_again():
    desk = Desk()
    for lag in (28_805.0, 5.0, 28_805.0):
        sample(desk, lag)
        desk.tick()
    ways_in = [e for e in desk.of(Kind.CLOCK_SKEW) if e.level is EventLevel.ERROR]
    assert len(ways_in) == 2


def test_the_end_of_a_skew_is_said_too():
    desk = Desk()
    for lag in (28_805.0, 5.0, 5.0):
        sample(desk, lag)
        desk.tick()
    levels = [event.level for event in desk.of(Kind.CLOCK_SKEW)]
    assert levels == [EventLevel.ERROR, EventLevel.INFO]


def test_a_skew_stands_in_the_status_as_long_as_it_lasts():
    desk = Desk()
    sample(desk, 28_805.0)
    desk.tick()
    likely = "time zone off by +8 h: check pull.timezone"
    assert desk.controller.troubles() == [{"kind": "clock_skew", "stage": "pull", "detail": likely}]
    sample(desk, 5.0)
    desk.tick()
    assert desk.controller.troubles() == []


def test_an_adopted_step_is_the_end_of_what_was_said_about_it():
    desk = Desk()
    desk.clock.wall_step = -3600.0
    desk.tick()
    sample(desk, 3605.0)
    desk.tick()
    desk.tick()
    levels = [event.level for event in desk.of(Kind.CLOCK_SKEW)]
    assert levels == [EventLevel.WARNING, EventLevel.INFO]


def test_a_hold_lasts_as_long_as_it_lasts_whatever_time_is_adopted_meanwhile():
    desk = Desk()
    desk.controller.hold(("pull", "query"), Reason.CREDIT, "test", "", "probe")
    desk.clock.wall_step = 3600.0
    sample(desk, -3590.0)
    desk.tick(after=10)
    assert desk.clock.wall_step == 0.0
    desk.clock.time += 10
    desk.controller.release(("pull", "query"), Reason.CREDIT, "test")
    (event,) = desk.of(Kind.RELEASE)
    assert event.detail["lasted"] == 20.0
    # Nor is a ticket's lateness blamed on a hold that was over before it came.
    desk.clock.wall_step = -20.0
    desk.tick()
    late = ticket(created=desk.clock.now() - 0.5)
    desk.clock.time += 300
    desk.controller.finish(late, Outcome.QUERY_STALE)
    assert late.outcome is Outcome.QUERY_STALE


def test_a_time_that_another_lane_adopts_is_news_to_this_one_too():
    desk = Desk()
    sample(desk, -3590.0)
    desk.clock.wall_step = 3600.0
    desk.clock.adopt()
    desk.tick()
    assert desk.of(Kind.CLOCK_SKEW) == []


# -- the rest --------------------------------------------------------------------------------------


def test_new_thresholds_count_from_the_next_decision_on():
    desk = Desk()
    desk.controller.reconfigure(
        lane_config(
            queue={"high_water": 60, "low_water": 5},
            query={"degraded_batch": 3},
            callback={"backlog_count": 10},
            breaker={"trip_after": 7},
            drop_rate={"min_total": 10},
            retry={"per_second": 1},
        )
    )
    desk.tick(Snapshot(60, 11, 0))
    assert desk.holds("pull") == {"backpressure"}
    assert desk.holds("query") == {"callback_backlog"}
    feed(desk.controller.stages["callback"].breaker, desk.clock.time, bad=7)
    assert desk.controller.stages["callback"].breaker.mode is Mode.OPEN
    assert desk.controller.stages["query"].budget.config.per_second == 1
    desk.finish(Outcome.QUERY_STALE, 10)
    desk.tick(after=0)
    assert "drop_rate" in desk.holds("query")


def test_a_larger_age_at_pull_also_means_a_larger_backlog_is_no_clock():
    desk = Desk()
    ages = {"stale_age": 1000, "max_age": 1000}
    desk.controller.reconfigure(lane_config(pull={"max_age": 900}, query=ages))
    sample(desk, 600.0)
    desk.tick()
    assert desk.of(Kind.CLOCK_SKEW) == []


def test_a_crash_is_counted_and_said_with_its_kind_and_place_but_not_its_message():
    desk = Desk()
    try:
        raise ValueError("Bearer secret")
    except ValueError as error:
        desk.controller.crashed("query", error)
    (event,) = desk.of(Kind.WORKER_CRASHED)
    assert event.stage == "query"
    assert event.detail["error"] == "ValueError"
    assert event.detail["where"].startswith("test_control_controller.py:")
    assert "secret" not in str(event)
    assert desk.controller.ledger.counters["worker_crashes"] == 1


def test_a_crash_without_a_traceback_is_said_all_the_same():
    desk = Desk()
    desk.controller.crashed("pull", ValueError())
    assert desk.of(Kind.WORKER_CRASHED)[0].detail["where"] == ""


def test_a_quiet_lane_says_nothing_for_an_hour():
    desk = Desk()
    for _ in range(3600):
        desk.tick(after=1)
    assert desk.events == []
    assert desk.slots() == FULL_SPEED


def test_the_same_crash_is_said_once_a_minute_with_how_often_it_happened():
    desk = Desk()
    for _ in range(100):
        desk.controller.crashed("query", ValueError())
        desk.controller.crashed("pull", ValueError())
    assert [(e.stage, e.detail["count"]) for e in desk.of(Kind.WORKER_CRASHED)] == [("query", 1), ("pull", 1)]
    desk.clock.time += 59.9
    desk.controller.crashed("query", ValueError())
    assert len(desk.of(Kind.WORKER_CRASHED)) == 2
    desk.clock.time += 0.2
    desk.controller.crashed("query", ValueError())
    assert desk.of(Kind.WORKER_CRASHED)[-1].detail["count"] == 101
    assert desk.controller.ledger.counters["worker_crashes"] == 202


@pytest.mark.parametrize("trouble", ["tls", "too_large", "descriptors"])
def test_a_trouble_is_said_once_until_a_call_goes_through_and_at_most_once_a_minute(trouble: str):
    desk = Desk()
    stage, kind = desk.controller.stages["query"], Kind(trouble)
    for _ in range(5):
        desk.controller.trouble("query", trouble, "why")
        stage.end(stage.begin(desk.clock.time), desk.clock.time, ok=False)
        desk.clock.time += 100
    assert len(desk.of(kind)) == 1
    for _ in range(5):
        stage.end(stage.begin(desk.clock.time), desk.clock.time, ok=True)
        desk.controller.trouble("query", trouble, "why")
    assert [(e.stage, e.level, e.detail) for e in desk.of(kind)] == [
        ("query", EventLevel.ERROR, {"error": "why"})
    ] * 2


def test_a_trouble_stands_in_the_status_until_a_call_goes_through_whether_it_is_said_again_or_not():
    desk = Desk()
    stage = desk.controller.stages["callback"]
    for _ in range(2):
        desk.controller.trouble("callback", "tls", "expired")
        stage.end(stage.begin(desk.clock.time), desk.clock.time, ok=False)
        assert desk.controller.troubles() == [{"kind": "tls", "stage": "callback", "detail": "expired"}]
        stage.end(stage.begin(desk.clock.time), desk.clock.time, ok=True)
        assert desk.controller.troubles() == []
    assert len(desk.of(Kind.TLS)) == 1


def test_a_trouble_of_one_stage_is_not_that_of_another():
    desk = Desk()
    for stage in ("pull", "query", "callback"):
        desk.controller.trouble(stage, "descriptors", "why")
    assert [event.stage for event in desk.of(Kind.DESCRIPTORS)] == ["pull", "query", "callback"]


def test_a_breaker_that_opens_of_faults_says_why_the_last_call_failed_and_one_of_drops_does_not():
    desk = Desk()
    stage = desk.controller.stages["query"]
    stage.end(stage.begin(desk.clock.time), desk.clock.time, ok=False, why="HTTP 500")
    stage.breaker.trip(desk.clock.time, "drop rate 15.0%")
    desk.tick(after=0)
    desk.tick(after=10)
    for _ in range(5):
        stage.end(stage.begin(desk.clock.time), desk.clock.time, ok=False, why="HTTP 503")
    desk.tick(after=0)
    said = [(e.detail["after"], e.detail.get("fault")) for e in desk.of(Kind.BREAKER)]
    assert said == [("open", None), ("half_open", None), ("open", "HTTP 503")]


def test_getting_worse_is_a_warning_and_getting_better_is_not():
    desk = Desk()
    breaker = desk.controller.stages["query"].breaker
    feed(breaker, desk.clock.time, bad=200)
    desk.tick(after=0)
    desk.tick(after=10)
    feed(breaker, desk.clock.time, good=6)
    desk.tick(after=0)
    desk.tick(after=60)
    said = [(e.detail["after"], e.level) for e in desk.of(Kind.BREAKER)]
    info, warning = EventLevel.INFO, EventLevel.WARNING
    assert said == [("open", warning), ("half_open", info), ("degraded", info), ("normal", info)]


def test_the_drop_rates_rise_is_a_warning_and_its_end_is_not():
    desk = Desk()
    dropped(desk, 88, 12)
    dropped(desk, 1000, 0)
    said = [(e.detail["before"], e.detail["after"], e.level) for e in desk.of(Kind.DROP_RATE)]
    assert said == [("ok", "degrade", EventLevel.WARNING), ("degrade", "ok", EventLevel.INFO)]


def test_a_hold_lasted_from_its_first_stage_on():
    desk = Desk()
    desk.controller.hold(("pull",), Reason.AUTH, "pull", "401", "probe")
    desk.clock.time += 100
    desk.controller.hold(("query",), Reason.AUTH, "query", "401", "probe")
    desk.clock.time += 10
    desk.controller.release(("query", "pull"), Reason.AUTH, "probe")
    assert desk.of(Kind.RELEASE)[0].detail["lasted"] == 110


@pytest.mark.parametrize("stage", ["query", "callback"])
def test_while_a_breaker_is_open_little_is_piled_up(stage: str):
    desk = at_full_mark()
    desk.controller.stages[stage].breaker.trip(desk.clock.time, "test")
    desk.tick()
    assert desk.controller.room.mark == 125


def test_while_the_query_is_held_little_is_piled_up():
    desk = at_full_mark()
    refuse(desk, Reason.CREDIT)
    desk.tick()
    assert desk.controller.room.mark == 125


def test_an_outage_does_not_turn_its_first_losses_into_a_hard_stop():
    desk = Desk()
    dropped(desk, 1000, 60)
    breaker = desk.controller.stages["query"].breaker
    feed(breaker, desk.clock.time, bad=200)
    for _ in range(7200):
        desk.tick(after=0.25)
        if breaker.mode is Mode.HALF_OPEN:
            feed(breaker, desk.clock.time, bad=5)
    desk.finish(Outcome.QUERY_STALE)
    desk.tick()
    assert desk.edges(Reason.DROP_RATE) == []


def test_with_the_callback_open_a_fraction_of_the_backlog_holds_the_query_until_it_may_try_again():
    desk = Desk()
    callback = desk.controller.stages["callback"].breaker
    callback.trip(desk.clock.time, "test")
    desk.tick(backlog(CAUTIOUS), after=0)
    assert desk.holds("query") == set()
    desk.tick(backlog(CAUTIOUS + 1), after=0)
    assert desk.holds("query") == {"callback_backlog"}
    desk.tick(backlog(0), after=0)
    assert desk.holds("query") == {"callback_backlog"}, "released while nobody takes the answers"
    desk.tick(backlog(CAUTIOUS // 2 - 1), after=10)
    assert desk.holds("query") == set()


@pytest.mark.parametrize("stage", ["query", "callback"])
def test_the_drop_rate_forgets_nothing_while_a_breaker_is_tripped(stage: str):
    desk = Desk()
    dropped(desk, 950, 50)
    breaker = desk.controller.stages[stage].breaker
    breaker.trip(desk.clock.time, "test")
    seen = set()
    for _ in range(4000):
        desk.tick(after=0.25)
        seen.add(breaker.mode)
        if breaker.mode is Mode.HALF_OPEN:
            feed(breaker, desk.clock.time, bad=5)
    assert seen == {Mode.OPEN, Mode.HALF_OPEN}
    assert desk.controller.drop_rate.numbers() == (950, 50)


def test_a_half_open_breaker_stops_the_drop_rates_clock_too_while_its_trials_are_out():
    desk = callback_in(Mode.HALF_OPEN, slow_after=3600)
    dropped(desk, 950, 50)
    desk.controller.stages["callback"].breaker.begin(desk.clock.time)
    for _ in range(1000):
        desk.tick(after=1)
    assert desk.controller.drop_rate.numbers() == (950, 50)


def test_a_half_open_breaker_that_nobody_tries_lets_the_drop_rate_forget():
    desk = callback_in(Mode.HALF_OPEN)
    dropped(desk, 850, 150)
    for _ in range(1300):
        desk.tick(after=0.5)
    assert desk.controller.drop_rate.numbers() == (0, 0)
    assert desk.controller.drop_rate.level is Level.OK


def test_after_the_outage_the_drop_rate_forgets_as_if_it_had_not_been():
    desk = Desk()
    dropped(desk, 950, 50)
    breaker = desk.controller.stages["query"].breaker
    desk.tick(after=300)
    breaker.trip(desk.clock.time, "test")
    for _ in range(2000):
        desk.tick(after=0.25)
        if breaker.mode is Mode.HALF_OPEN:
            feed(breaker, desk.clock.time, bad=5)
    desk.tick(after=breaker.open_for(desk.clock.time))
    feed(breaker, desk.clock.time, good=6)
    for _ in range(4 * 297):
        desk.tick(after=0.25)
    assert desk.controller.drop_rate.numbers() == (950, 50)
    for _ in range(4 * 4):
        desk.tick(after=0.25)
    assert desk.controller.drop_rate.numbers() == (0, 0)


def test_a_pull_that_is_out_of_order_does_not_stop_the_drop_rates_clock():
    desk = Desk()
    dropped(desk, 950, 50)
    breaker = desk.controller.stages["pull"].breaker
    breaker.trip(desk.clock.time, "test")
    for _ in range(601):
        desk.tick(after=1)
        if breaker.mode is Mode.HALF_OPEN:
            feed(breaker, desk.clock.time, bad=5)
    assert breaker.is_tripped
    assert desk.controller.drop_rate.numbers() == (0, 0)


def test_losses_during_an_outage_still_stop_the_lane_at_twenty_per_cent():
    desk = callback_in(Mode.OPEN)
    dropped(desk, 80, 20)
    assert desk.holds("pull") == {"drop_rate"}


def test_an_overflow_is_said_once_a_minute():
    desk = Desk()
    for _ in range(1000):
        desk.controller.overflowed(50, 1_000_000, 999_000)
    (event,) = desk.of(Kind.OVERFLOW)
    assert (event.stage, event.level) == ("pull", EventLevel.WARNING)
    assert event.detail == {"asked": 50, "got": 1_000_000, "count": 999_000}
    desk.clock.time += 59.9
    desk.controller.overflowed(50, 60, 10)
    assert len(desk.of(Kind.OVERFLOW)) == 1
    desk.clock.time += 0.1
    desk.controller.overflowed(50, 60, 10)
    assert len(desk.of(Kind.OVERFLOW)) == 2


def test_different_crashes_are_each_said():
    desk = Desk()
    for error in (ValueError(), KeyError(), ValueError()):
        desk.controller.crashed("query", error)
    assert [e.detail["error"] for e in desk.of(Kind.WORKER_CRASHED)] == ["ValueError", "KeyError"]
