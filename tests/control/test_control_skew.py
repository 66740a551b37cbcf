import pytest

from pipeline.control.skew import SkewWatch


def watch(*lags: float, max_age: float = 180.0) -> SkewWatch:
    made = SkewWatch(max_age)
    for lag in lags:
        made.sample(lag)
    return made


def test_nineteen_tickets_are_too_few_and_twenty_are_enough():
    assert watch(*[1_000.0] * 19).judge() is None
    assert watch(*[1_000.0] * 20).judge() is not None


@pytest.mark.parametrize("lag", [28_800.0, -28_800.0, 1_800.0])
def test_five_are_enough_where_they_agree_on_half_an_hour_or_more(lag: float):
    assert watch(*[lag] * 4).judge() is None
    assert watch(*[lag] * 5).judge() is not None


def test_a_few_that_do_not_agree_to_the_minute_are_too_few():
    assert watch(*[28_800.0] * 10, 28_861.0).judge() is None
    assert watch(*[28_800.0] * 10, 1.0).judge() is None


@pytest.mark.parametrize(
    ("lag", "likely"),
    [
        (28_860.0, "time zone off by +8 h: check pull.timezone"),
        (-28_790.0, "time zone off by -8 h: check pull.timezone"),
        (19_800.0, "time zone off by +5.5 h: check pull.timezone"),
        (3_600.0, "time zone off by +1 h: check pull.timezone"),
        (-100.0, "clocks differ by -100 s"),
        (1_250.0, "clocks differ by +1250 s"),
    ],
)
def test_the_event_names_the_likely_offset(lag: float, likely: str):
    skew = watch(*[lag] * 30).judge()
    assert skew is not None
    assert (skew.offset, skew.likely) == (pytest.approx(lag), likely)


def test_a_minute_in_the_future_is_jitter_and_more_is_a_clock():
    assert watch(*[-60.0] * 50).judge() is None
    assert watch(*[-60.1] * 50).judge() is not None


def test_a_backlog_upstream_is_no_clock():
    assert watch(*[240.0] * 50).judge() is None
    assert watch(*[240.1] * 50).judge() is not None


def test_most_means_more_than_half():
    assert watch(*[28_800.0] * 50, *[1.0] * 50).judge() is None
    assert watch(*[28_800.0] * 51, *[1.0] * 50).judge() is not None


def test_off_in_both_directions_is_noise():
    assert watch(*[28_800.0] * 50, *[-28_800.0] * 50).judge() is None


def test_only_the_last_two_hundred_tickets_count():
    made = watch(*[28_800.0] * 500)
    for _ in range(100):
        made.sample(1.0)
    assert made.judge() is None


def test_cleared_it_begins_from_nothing():
    made = watch(*[28_800.0] * 50)
    made.clear()
    assert made.judge() is None


def test_a_step_of_our_clock_fits_if_it_makes_the_tickets_look_right():
    fast = watch(*[-3_590.0] * 30)  # our clock is an hour behind the tickets
    assert fast.would_fit(3_600.0)
    assert not fast.would_fit(-3_600.0)
    assert not watch(*[10.0] * 30).would_fit(3_600.0)
    assert not watch(*[10.0] * 30).would_fit(0.0)
