import pytest
from control_makers import LATE_NAMES, ticket
from hypothesis import given
from hypothesis import strategies as st

from pipeline.control.ledger import Ledger
from pipeline.errors import IllegalTransition
from pipeline.ticket import DROPPED, LATE, Outcome


def test_a_ticket_ends_once_and_a_second_end_is_a_bug():
    ledger, one = Ledger(), ticket()
    ledger.finish(one, Outcome.DELIVERED)
    with pytest.raises(IllegalTransition, match="no way from delivered to rejected"):
        ledger.finish(one, Outcome.REJECTED)
    assert one.outcome is Outcome.DELIVERED
    assert (ledger.counters["delivered"], ledger.counters["rejected"]) == (1, 0)


def test_an_unknown_name_is_a_bug_and_not_a_new_counter():
    with pytest.raises(KeyError):
        Ledger().count("deliverd")


def test_every_counter_of_the_contract_is_there_from_the_start():
    along_the_way = {"pulled", "joined", "queried", "answered", "offline", "processing"}
    ends = {"pull_expired", "duplicates", "delivered", "rejected"}
    wanted = along_the_way | ends | LATE_NAMES
    counters = Ledger().counters
    assert {name: counters[name] for name in wanted} == dict.fromkeys(wanted, 0)


def test_expired_at_pull_and_duplicates_are_not_dropped():
    ledger = Ledger()
    for outcome in Outcome:
        ledger.finish(ticket(), outcome)
    others = {Outcome.DELIVERED, Outcome.REJECTED, Outcome.DUPLICATE, Outcome.PULL_EXPIRED}
    assert set(Outcome) - DROPPED == others
    assert ledger.dropped == len(Outcome) - 4


def test_only_our_own_lateness_feeds_the_drop_rate():
    assert {str(outcome) for outcome in LATE} == LATE_NAMES


@given(st.lists(st.sampled_from(list(Outcome)), max_size=30), st.integers(0, 5), st.integers(-2, 2))
def test_the_books_balance_exactly_when_no_ticket_is_missing(ends: list[Outcome], flying: int, lost: int):
    ledger = Ledger()
    ledger.count("pulled", len(ends) + flying + lost)
    for outcome in ends:
        ledger.finish(ticket(), outcome)
    books = ledger.conservation(flying)
    assert books["balanced"] is (lost == 0)
    assert books["accounted"] == len(ends) + flying
    assert books["pulled"] == len(ends) + flying + lost
