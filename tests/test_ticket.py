import pytest

from pipeline.ticket import Ticket

NOW, HOUR = 1_760_000_000.0, 3600.0


def dated(stamp: float | None, created: float) -> Ticket:
    return Ticket("key", "trace", stamp, created=created)


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_date_that_was_ours_moves_with_our_clock_and_the_age_stays(step: float):
    ticket = dated(None, NOW - 20)
    ticket.redate(step)
    assert ticket.age(NOW + step) == 20


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_a_date_that_is_upstreams_stays(step: float):
    ticket = dated(NOW - 20, NOW - 20)
    ticket.redate(step)
    assert ticket.created == NOW - 20


def test_a_stamp_that_looked_unborn_is_believed_once_our_clock_is_right():
    made = NOW + HOUR - 30  # by upstream's clock, which is right; pulled ten seconds later by ours
    ticket = dated(made, NOW - 20)
    ticket.redate(HOUR)
    assert ticket.created == made
    ticket.redate(HOUR)
    assert ticket.created == made


def test_a_stamp_that_is_still_unborn_leaves_the_moment_of_the_pull():
    ticket = dated(NOW + 10 * HOUR, NOW - 20)
    ticket.redate(HOUR)
    assert ticket.age(NOW + HOUR) == 20
