import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.control.pollers import Pollers


def after(slots: int, *pulls: tuple[int, int]) -> Pollers:
    pollers = Pollers(slots)
    for asked, got in pulls:
        pollers.learn(asked, got)
    return pollers


def round_of(pollers: Pollers, asked: int, got: int) -> int:
    """Everybody who may ask asks once."""
    for _ in range(pollers.number):
        pollers.learn(asked, got)
    return pollers.number


def test_at_the_start_all_slots_ask():
    assert Pollers(1250).number == 1250


def test_a_round_of_empty_pulls_halves_them_until_few_are_left():
    pollers = Pollers(1250)
    assert [round_of(pollers, 50, 0) for _ in range(7)] == [625, 312, 156, 78, 39, 25, 25]


def test_a_round_of_full_pulls_doubles_them_until_all_ask():
    pollers = after(1250, *[(50, 0)] * 5000)
    assert [round_of(pollers, 50, 50) for _ in range(7)] == [50, 100, 200, 400, 800, 1250, 1250]


def test_pulls_that_are_neither_full_nor_empty_change_nothing():
    pollers = after(1250, *[(50, 0)] * 1000)
    before = pollers.number
    for got in (1, 20, 37):
        assert round_of(pollers, 50, got) == before


@pytest.mark.parametrize(
    ("slots", "least"), [(1, 1), (3, 3), (5, 5), (6, 5), (250, 5), (299, 5), (300, 6), (1250, 25)]
)
def test_however_empty_upstream_is_some_go_on_asking(slots: int, least: int):
    assert after(slots, *[(50, 0)] * 5000).number == least


def test_one_full_pull_among_two_empty_ones_keeps_the_number():
    pollers = after(1250, *[(50, 0)] * 1000)
    before = pollers.number
    for _ in range(500):
        for got in (0, 50, 0):
            pollers.learn(50, got)
    assert pollers.number == before


@pytest.mark.parametrize(
    ("asked", "got", "rest"),
    [(50, 50, 0.0), (50, 38, 0.0), (40, 30, 0.0), (40, 15, 0.5), (50, 0, 1.0), (1, 1, 0.0), (1, 0, 1.0)],
)
def test_the_emptier_the_pull_the_longer_the_rest(asked: int, got: int, rest: float):
    assert Pollers(100).learn(asked, got) == pytest.approx(rest)


def test_more_than_was_asked_for_is_full():
    pollers = after(100, *[(50, 0)] * 40)
    before = pollers.number
    assert pollers.learn(50, 5000) == 0.0
    assert pollers.number == before + 1


@given(
    slots=st.integers(1, 2000),
    pulls=st.lists(st.tuples(st.integers(1, 200), st.integers(0, 400)), max_size=200),
)
def test_whatever_comes_back_somebody_asks_and_never_more_than_there_are_slots(
    slots: int, pulls: list[tuple[int, int]]
):
    pollers = Pollers(slots)
    for asked, got in pulls:
        assert 0.0 <= pollers.learn(asked, got) <= 1.0
        assert 1 <= pollers.number <= slots
