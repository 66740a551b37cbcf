import pytest
from control_makers import PROPERTY
from hypothesis import given
from hypothesis import strategies as st

from pipeline.control.latency import Latency


def test_with_nothing_measured_there_is_nothing_to_tell():
    assert Latency().quantiles(0.5, 0.99) == [None, None]


@PROPERTY
@given(st.floats(0.0006, 400.0))
def test_one_call_is_its_own_median_within_five_per_cent(seconds: float):
    latency = Latency()
    latency.record(1000.0, seconds)
    (median,) = latency.quantiles(0.5)
    assert median == pytest.approx(seconds, rel=0.05)


@PROPERTY
@given(st.lists(st.floats(0.001, 300.0), min_size=1, max_size=80), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_that_of_the_sorted_list_within_five_per_cent(calls: list[float], share: float):
    latency = Latency()
    for seconds in calls:
        latency.record(5.0, seconds)
    rank = next(i for i in range(1, len(calls) + 1) if i >= share * len(calls))
    (value,) = latency.quantiles(share)
    assert value == pytest.approx(sorted(calls)[rank - 1], rel=0.05)


def test_the_tail_shows_in_p99_and_not_in_p50():
    latency = Latency()
    for number in range(100):
        latency.record(10.0, 100.0 if number >= 98 else 0.1)
    p50, p95, p99 = latency.quantiles(0.5, 0.95, 0.99)
    assert p50 == pytest.approx(0.1, rel=0.05)
    assert p95 == pytest.approx(0.1, rel=0.05)
    assert p99 == pytest.approx(100.0, rel=0.05)


def test_nothing_is_too_short_or_too_long_to_be_counted():
    latency = Latency()
    for seconds in (-1.0, 0.0, 1e-9):
        latency.record(1.0, seconds)
    assert latency.quantiles(0.5)[0] == pytest.approx(0.0005, rel=0.05)
    for _ in range(10):
        latency.record(1.0, 1e9)
    assert latency.quantiles(0.99)[0] == pytest.approx(420, rel=0.05)


def test_a_call_is_remembered_for_fifty_seconds_and_forgotten_after_a_minute():
    latency = Latency()
    latency.record(109.9, 1.0)
    latency.slide(159.9)
    assert latency.quantiles(0.5) != [None]
    latency.slide(160.0)
    assert latency.quantiles(0.5) == [None]


def test_calls_of_different_moments_of_the_minute_are_seen_together():
    latency = Latency()
    for moment, seconds in ((5.0, 1.0), (15.0, 2.0), (25.0, 4.0), (35.0, 8.0), (45.0, 16.0)):
        latency.record(moment, seconds)
    found = latency.quantiles(0.2, 0.4, 0.6, 0.8, 1.0)
    assert found == [pytest.approx(s, rel=0.05) for s in (1.0, 2.0, 4.0, 8.0, 16.0)]


def test_after_a_silence_only_what_came_since_is_told():
    latency = Latency()
    for moment in range(0, 60, 5):
        latency.record(float(moment), 0.001)
    latency.record(500.0, 8.0)
    assert latency.quantiles(0.01, 0.5) == [pytest.approx(8.0, rel=0.05)] * 2


def test_a_long_silence_empties_it_at_once():
    latency = Latency()
    for moment in range(0, 60, 5):
        latency.record(float(moment), 1.0)
    latency.slide(100_000.0)
    assert latency.quantiles(0.5) == [None]
