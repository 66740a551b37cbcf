from control_makers import PROPERTY
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pipeline.control.health import Window


def test_an_empty_window_has_a_share_of_nothing():
    assert (Window(60).share, Window(60).total) == (0.0, 0)


def test_a_sample_is_seen_for_sixty_seconds_and_not_in_the_sixty_first():
    window = Window(60)
    window.record(100.0, marked=1)
    window.slide(159.99)
    assert (window.total, window.marked) == (1, 1)
    window.slide(160.0)
    assert (window.total, window.marked) == (0, 0)


def test_a_jump_over_several_windows_empties_it():
    window = Window(60)
    for second in range(60):
        window.record(float(second), marked=1)
    window.slide(10_000.0)
    assert (window.total, window.marked) == (0, 0)


def test_a_late_sample_of_the_same_second_is_counted_and_not_lost():
    window = Window(3)
    window.record(7.9)
    window.record(7.1, marked=1)
    assert (window.total, window.marked, window.share) == (2, 1, 0.5)


def test_clearing_forgets_all_and_goes_on_counting():
    window = Window(5)
    window.record(1.0, marked=1)
    window.clear()
    assert (window.total, window.marked) == (0, 0)
    window.record(1.5)
    window.slide(6.0)
    assert (window.total, window.marked) == (0, 0)


class WindowAgainstAList(RuleBasedStateMachine):
    """One-second buckets that slide, against all samples kept and counted anew."""

    @initialize(size=st.integers(1, 7), start=st.floats(0, 50))
    def begin(self, size: int, start: float) -> None:
        self.size, self.now = size, start
        self.window = Window(size)
        self.samples: list[tuple[int, int, int]] = []
        self.window.slide(start)

    @rule(count=st.integers(1, 4), marked=st.integers(0, 4))
    def record(self, count: int, marked: int) -> None:
        self.window.record(self.now, marked=min(marked, count), count=count)
        self.samples.append((int(self.now), count, min(marked, count)))

    @rule(seconds=st.one_of(st.floats(0, 2), st.floats(0, 30)))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.window.slide(self.now)

    @rule()
    def clear(self) -> None:
        self.window.clear()
        self.samples.clear()

    @invariant()
    def agrees_with_the_list(self) -> None:
        if not hasattr(self, "samples"):
            return
        seen = [s for s in self.samples if int(self.now) - s[0] < self.size]
        total, marked = sum(s[1] for s in seen), sum(s[2] for s in seen)
        assert (self.window.total, self.window.marked) == (total, marked)
        assert self.window.share == (marked / total if total else 0.0)


WindowAgainstAList.TestCase.settings = PROPERTY
TestWindowAgainstAList = WindowAgainstAList.TestCase
