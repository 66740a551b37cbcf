from control_makers import PROPERTY, lane_config, look_at
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pipeline.control.backpressure import Room


def room_of(high: int = 800, low: int = 100, limit: int = 200, mark: int | None = None) -> Room:
    room = Room(lane_config(queue={"high_water": high, "low_water": low}, pull={"limit": limit}))
    room.mark = high if mark is None else mark
    room._expected = float(limit)  # as if full pulls had taught it so
    return room


def test_a_pull_reserves_no_more_than_the_limit_and_no_more_than_there_is_room():
    assert room_of().reserve(0) == 200
    room = room_of(high=400)
    assert room.reserve(250) == 150
    assert room.reserved == 150


def test_too_little_room_is_not_worth_a_pull():
    room = room_of(high=400)
    assert room.reserve(301) == 0
    assert room.reserve(300) == 100
    assert room_of(high=400).is_full(301)
    assert not room_of(high=400).is_full(300)


def test_what_is_reserved_is_no_longer_free_for_the_next():
    room = room_of(high=400)
    assert [room.reserve(0), room.reserve(0), room.reserve(0)] == [200, 200, 0]
    room.give_back(200)
    assert room.reserve(0) == 200


def test_only_what_was_reserved_counts_as_a_reservation():
    room = room_of(high=400)
    for depth in (0, 0, 400):
        room.reserve(depth)
    assert room.reservations == 2


def test_a_full_queue_has_no_room():
    room = room_of()
    assert room.reserve(800) == 0
    assert not room.reserve_possible(800)
    assert room.is_full(800)
    assert room.reserved == 0


def test_an_empty_queue_is_not_full_however_many_pulls_are_under_way():
    room = room_of()
    while room.reserve(0):
        pass
    assert not room.reserve_possible(0)
    assert not room.is_full(0)


def test_asking_whether_there_is_room_reserves_nothing():
    room = room_of()
    assert room.reserve_possible(0)
    assert room.reserved == 0


def test_a_queue_smaller_than_one_pulls_limit_is_filled_all_the_same():
    room = room_of(high=50, low=10, limit=200)
    assert room.reserve(0) == 50
    assert not room_of(high=50, low=10, limit=200).is_full(0)


def test_a_small_queue_is_filled_to_its_last_place():
    room = Room(lane_config(queue={"high_water": 10, "low_water": 2}))
    assert [room.reserve(0), room.reserve(9), room.reserve(10)] == [10, 0, 0]
    room.settle(10, 9, now=1.0)
    assert room.reserve(9) == 1


def test_poor_pulls_teach_it_to_reserve_less_and_full_ones_more():
    room = room_of()
    for _ in range(40):
        room.settle(room.reserve(0), 4, now=1.0)
    poor = room.expected
    assert 4 <= poor <= 6
    seen = []
    for _ in range(8):
        asked = room.reserve(0)
        room.settle(asked, asked, now=1.0)
        seen.append(room.expected)
    assert seen[0] == 2 * poor
    assert seen[-1] == 200


def test_empty_pulls_never_teach_it_to_ask_for_nothing():
    room = room_of()
    for _ in range(200):
        room.settle(room.reserve(0), 0, now=1.0)
    assert room.reserve(0) >= 1


def test_empty_pulls_teach_no_more_than_to_let_others_ask_at_the_same_time():
    room = room_of(mark=100)
    for _ in range(200):
        room.settle(room.reserve(0), 0, now=1.0)
    assert 9 <= room.expected <= 13
    small = room_of(limit=7, mark=100)
    for _ in range(200):
        small.settle(small.reserve(0), 0, now=1.0)
    assert small.expected == 7


def test_a_failed_pull_teaches_nothing():
    room = room_of()
    room.give_back(room.reserve(0))
    assert (room.reserved, room.expected) == (0, 200)


def test_the_peak_is_the_deepest_the_queue_has_been():
    room = room_of()
    for depth in (10, 700, 30):
        look_at(room, 1.0, depth)
    assert room.peak == 700


def test_the_mark_falls_where_so_many_could_not_be_served_in_time():
    room = room_of()
    asked = room.reserve(0)
    room.settle(asked, asked, now=0.0)
    room.pulled(140.0)
    for second in range(30):
        room.answered()  # one a second
        look_at(room, float(second), 300)
    look_at(room, 30.0, 300)
    # 29 a half minute, 0.8 for safety, and 240 - 140 - 30 seconds left for the oldest
    assert room.mark == int(29 / 30 * 0.8 * 70)
    look_at(room, 30.0, 300, asking=20)
    assert room.mark == int(29 / 30 * 0.8 * 70 - 20)
    look_at(room, 30.0, 300, asking=1000)
    assert room.mark == 10


def test_while_nobody_is_served_little_more_than_the_low_water_is_piled_up():
    room = room_of()
    look_at(room, 1.0, 300, served=False)
    assert room.mark == 125
    tiny = room_of(high=10, low=2)
    look_at(tiny, 1.0, 5, served=False)
    assert tiny.mark == 10, "so few may wait in any case"
    small = room_of(mark=50)
    look_at(small, 1.0, 20, served=False)
    assert small.mark == 50


def test_the_share_of_queries_that_come_back_is_learned_and_room_is_kept_for_them():
    room = room_of()
    assert room.coming_back(500) == 200
    for number in range(2000):
        if number % 2:
            room.answered()
        else:
            room.came_back()
    assert 240 <= room.coming_back(500) <= 260
    for _ in range(2000):
        room.answered()
    assert room.coming_back(500) <= 1
    assert room.coming_back(0) == 0


def test_the_mark_begins_at_a_hundred_or_the_low_water_and_never_above_the_high():
    marks = {(800, 300): 300, (800, 10): 100, (50, 10): 50, (10, 2): 10}
    for (high, low), mark in marks.items():
        assert Room(lane_config(queue={"high_water": high, "low_water": low})).mark == mark


def test_the_mark_stays_where_it_begins_while_nothing_has_left():
    room = Room(lane_config())
    look_at(room, 1.0, 50)
    assert room.mark == 100
    room.settle(room.reserve(0), 100, now=1.0)
    look_at(room, 2.0, 50)
    assert room.mark == 100


def test_what_has_left_counts_from_the_next_tick_on_and_once():
    room = room_of(mark=100)
    room.settle(room.reserve(0), 200, now=0.0)
    for _ in range(30):
        room.answered()
    assert room.mark == 100
    for second in (10.0, 11.0, 12.0):
        look_at(room, second, 50)
        # 30 since the first pull, 0.8 for safety; nobody pulled since, so that upstream's grow older
        assert room.mark == int(30 / second * 0.8 * (240 - second))


def test_while_nothing_leaves_the_last_known_rate_is_the_best_guess():
    room = room_of()
    room.settle(room.reserve(0), 200, now=0.0)
    for _ in range(60):
        room.answered()
    look_at(room, 10.0, 300)
    learned = room.mark
    assert learned < 800 * 2
    for second in range(41, 400):
        look_at(room, float(second), 300)
        assert room.mark == learned


def test_the_mark_never_rises_above_the_high_water():
    room = room_of()
    room.settle(room.reserve(0), 200, now=0.0)
    for _ in range(100_000):
        room.answered()
    look_at(room, 10.0, 300)
    assert room.mark == 800


def test_a_new_high_water_is_obeyed_from_the_next_tick_on():
    room = room_of()
    room.settle(room.reserve(0), 200, now=0.0)
    for _ in range(100_000):
        room.answered()
    room.reconfigure(lane_config(queue={"high_water": 300}))
    look_at(room, 10.0, 0)
    assert room.mark == 300


def test_a_new_high_water_is_obeyed_by_an_idle_lane_too():
    room = room_of()
    room.reconfigure(lane_config(queue={"high_water": 300}))
    look_at(room, 10.0, 0)
    assert room.mark <= 300


class RoomMachine(RuleBasedStateMachine):
    """Whatever upstream returns, queue plus reserved stays at most one batch above the high mark."""

    @initialize(high=st.integers(20, 100), limit=st.integers(1, 60))
    def begin(self, high: int, limit: int) -> None:
        self.high, self.limit, self.now = high, limit, 10.0
        self.room = Room(lane_config(queue={"high_water": high, "low_water": 5}, pull={"limit": limit}))
        self.depth = 0
        self.pulls: list[int] = []

    @rule(herd=st.integers(1, 20))
    def a_herd_of_pulls_begins(self, herd: int) -> None:
        for _ in range(herd):
            possible = self.room.reserve_possible(self.depth)
            asked = self.room.reserve(self.depth)
            assert bool(asked) == possible
            if not asked:
                return
            assert 1 <= asked <= self.limit
            assert self.depth + self.room.reserved <= self.room.mark <= self.high
            self.pulls.append(asked)

    @rule(data=st.data(), share=st.sampled_from([0.0, 0.1, 1.0, 1.0, 3.0]))
    def a_pull_comes_back(self, data: st.DataObject, share: float) -> None:
        if self.pulls:
            asked = self.pulls.pop(data.draw(st.integers(0, len(self.pulls) - 1)))
            got = int(asked * share)
            # the pull stage cuts what upstream hands out beyond the capacity
            fits = max(asked, self.high + self.limit - self.depth - self.room.reserved)
            self.depth += min(got, fits)
            self.room.pulled(30.0)
            self.room.settle(asked, got, self.now)

    @rule()
    def a_pull_fails(self) -> None:
        if self.pulls:
            self.room.give_back(self.pulls.pop())

    @rule(count=st.integers(1, 40))
    def tickets_leave(self, count: int) -> None:
        for _ in range(min(count, self.depth)):
            self.depth -= 1
            self.room.answered()

    @rule(
        seconds=st.sampled_from([0.25, 1.0, 10.0, 40.0]),
        asking=st.sampled_from([0, 5, 500]),
        served=st.booleans(),
    )
    def tick(self, seconds: float, asking: int, served: bool) -> None:
        self.now += seconds
        look_at(self.room, self.now, self.depth, asking=asking, served=served)

    @invariant()
    def stays_within_one_batch_of_the_high_mark(self) -> None:
        if hasattr(self, "pulls"):
            assert self.room.reserved == sum(self.pulls)
            assert self.depth + self.room.reserved <= self.high + self.limit
            assert 1 <= self.room.mark <= self.high

    @invariant()
    def an_empty_queue_without_pulls_has_room(self) -> None:
        if hasattr(self, "pulls") and not self.pulls and not self.depth:
            assert self.room.reserve_possible(0), "nobody would ever pull again"


RoomMachine.TestCase.settings = PROPERTY
TestRoomMachine = RoomMachine.TestCase
