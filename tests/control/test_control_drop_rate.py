from typing import Any

import pytest

from pipeline.config import DropRateConfig
from pipeline.control.drop_rate import DropRate, Level

T = 5000.5


def rated(delivered: int, dropped: int, now: float = T, **config: Any) -> DropRate:
    rate = DropRate(DropRateConfig(**config))
    count(rate, delivered, dropped, now)
    return rate


def count(rate: DropRate, delivered: int, dropped: int, now: float = T) -> None:
    for _ in range(delivered):
        rate.delivered(now)
    for _ in range(dropped):
        rate.dropped(now)


@pytest.mark.parametrize(
    ("delivered", "dropped", "level"),
    [
        (1000, 0, Level.OK),
        (901, 99, Level.OK),
        (900, 100, Level.DEGRADE),
        (851, 149, Level.DEGRADE),
        (850, 150, Level.TRIP),
        (801, 199, Level.TRIP),
        (800, 200, Level.STOP),
        (0, 1000, Level.STOP),
    ],
)
def test_the_levels_begin_at_ten_fifteen_and_twenty_per_cent(delivered: int, dropped: int, level: Level):
    rate = rated(delivered, dropped)
    rate.tick(T)
    assert rate.level is level


def test_ninety_nine_are_not_judged_and_a_hundred_are():
    rate = rated(0, 99)
    assert (rate.judged, rate.tick(T), rate.level) == (False, False, Level.OK)
    count(rate, 0, 1)
    assert (rate.judged, rate.tick(T), rate.level) == (True, True, Level.STOP)


def test_drops_from_before_there_were_enough_are_judged_with_the_delivery_that_makes_a_hundred():
    rate = rated(0, 25)
    assert rate.tick(T) is False
    count(rate, 74, 0)
    assert rate.tick(T) is False
    count(rate, 1, 0)
    assert (rate.tick(T), rate.level) == (True, Level.STOP)


def test_the_rate_is_dropped_of_delivered_and_dropped():
    rate = rated(1000, 275)
    assert rate.numbers() == (1000, 275)
    assert rate.rate == pytest.approx(0.2157, abs=1e-4)
    assert rated(50, 50).rate == 0.5
    assert DropRate(DropRateConfig()).rate == 0.0


def test_a_level_is_announced_once():
    rate = rated(850, 150)
    assert rate.tick(T) is True
    assert rate.tick(T) is False
    count(rate, 850, 150)
    assert rate.tick(T) is False


def test_drops_are_forgotten_after_ten_minutes():
    rate = rated(0, 500)
    rate.tick(T)
    rate.tick(T + 599)
    assert rate.level is Level.STOP
    assert rate.tick(T + 600) is True
    assert (rate.level, rate.numbers()) == (Level.OK, (0, 0))


def test_the_level_falls_by_itself_as_deliveries_come():
    rate = rated(850, 150)
    rate.tick(T)
    count(rate, 1000, 0)
    assert rate.tick(T) is True
    assert rate.level is Level.OK


def test_without_a_window_nothing_is_forgotten_until_the_restart():
    rate = rated(80, 20, window=0)
    rate.tick(T)
    rate.tick(T + 100_000)
    assert (rate.level, rate.numbers()) == (Level.STOP, (80, 20))
    rate.restart()
    assert (rate.level, rate.numbers()) == (Level.OK, (0, 0))


def test_a_restart_counts_afresh_and_judges_from_a_hundred_again():
    rate = rated(0, 500)
    rate.tick(T)
    rate.restart()
    assert (rate.level, rate.numbers(), rate.judged) == (Level.OK, (0, 0), False)
    count(rate, 0, 99)
    rate.tick(T)
    assert rate.level is Level.OK
    count(rate, 0, 1)
    rate.tick(T)
    assert rate.level is Level.STOP


def test_old_deliveries_sliding_out_do_not_raise_the_level_in_a_long_hold():
    rate = rated(1900, 0)
    count(rate, 0, 100, now=T + 300)
    rate.tick(T + 300)
    assert rate.level is Level.OK
    assert rate.tick(T + 600) is False
    assert (rate.rate, rate.level) == (1.0, Level.OK)
    rate.dropped(T + 601)
    assert rate.tick(T + 601) is True
    assert rate.level is Level.STOP


def test_a_drop_before_the_last_look_is_not_fresh_any_more():
    rate = rated(1900, 100)
    rate.tick(T)
    count(rate, 0, 100, now=T + 599)
    rate.tick(T + 599)
    level = rate.level
    rate.tick(T + 600)
    assert rate.level is level


def test_configured_thresholds_are_the_thresholds():
    rate = rated(60, 40, degrade=0.3, trip=0.41, stop=0.5)
    rate.tick(T)
    assert rate.level is Level.DEGRADE


def test_time_stands_still_while_nothing_works_and_goes_on_after():
    rate = rated(450, 50)
    rate.tick(T)
    for second in range(1, 2001):
        rate.tick(T + second, working=False)
    assert rate.numbers() == (450, 50)
    count(rate, 10, 0, now=T + 2000)
    rate.tick(T + 2599)
    assert rate.numbers() == (460, 50)
    rate.tick(T + 2600)
    assert rate.numbers() == (0, 0)


def test_what_happens_while_time_stands_still_is_counted_all_the_same():
    rate = rated(80, 0)
    rate.tick(T)
    rate.tick(T + 100, working=False)
    count(rate, 0, 20, now=T + 100)
    assert rate.tick(T + 101, working=False) is True
    assert rate.level is Level.STOP
