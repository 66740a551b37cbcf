import pytest

from pipeline.control.ledger import Ledger
from pipeline.money import Money


def accounts(price: float = 1.0) -> tuple[Money, Ledger]:
    ledger = Ledger()
    return Money(price, ledger), ledger


def test_before_anything_is_known_everything_is_null():
    money, _ = accounts()
    assert money.credits_status(0.0) == {
        "balance": None,
        "spent": 0.0,
        "per_delivery": None,
        "hours_left": None,
    }
    assert money.upstream_status() == {"today": None, "since_start": None}


def test_answers_and_gone_products_are_paid_for_and_nothing_else():
    money, ledger = accounts(price=0.5)
    for name in ("answered", "offline", "processing", "provider_error", "query_faults", "joined"):
        ledger.count(name, 10)
    assert money.spent == 10.0


def test_what_one_delivery_costs():
    money, ledger = accounts()
    ledger.count("answered", 30)
    ledger.count("delivered", 20)
    assert money.credits_status(0.0)["per_delivery"] == 1.5


def test_hours_left_is_the_balance_at_the_present_speed():
    money, ledger = accounts()
    money.see(None, 7200.0, now=100.0)
    ledger.count("answered", 20)
    assert money.credits_status(110.0)["hours_left"] == 1.0


def test_without_spending_time_or_a_balance_nobody_knows_how_long_it_lasts():
    money, ledger = accounts()
    money.see(None, 7200.0, now=100.0)
    assert money.credits_status(200.0)["hours_left"] is None
    ledger.count("answered", 20)
    assert money.credits_status(100.5)["hours_left"] is None
    unknown, ledger = accounts()
    unknown.see(None, None, now=100.0)
    ledger.count("answered", 20)
    assert unknown.credits_status(200.0)["hours_left"] is None


def test_the_speed_is_that_of_the_last_sixty_looks():
    money, ledger = accounts()
    ledger.count("answered", 1_000_000)
    for look in range(100):
        money.see(None, 3600.0, now=look * 10.0)
        ledger.count("answered", 10)
    assert money.credits_status(1000.0)["hours_left"] == pytest.approx(1.0, rel=0.02)


def test_a_look_that_learned_nothing_keeps_what_was_known():
    money, _ = accounts()
    money.see(500, 99_611.0, now=0.0)
    money.see(None, None, now=10.0)
    assert money.credits_status(10.0)["balance"] == 99_611.0
    assert money.upstream_status() == {"today": 500, "since_start": 0}


def test_upstreams_count_since_our_start():
    money, _ = accounts()
    for volume in (12_345, 12_400, 12_500):
        money.see(volume, None, now=0.0)
    assert money.upstream_status() == {"today": 12_500, "since_start": 155}


def test_a_new_day_begins_upstreams_count_anew_and_all_of_it_is_since_our_start():
    money, _ = accounts()
    for volume in (12_345, 12_500, 3, 10):
        money.see(volume, None, now=0.0)
    assert money.upstream_status() == {"today": 10, "since_start": 10}


def test_a_new_day_is_noticed_also_when_it_begins_busier_than_we_did():
    money, _ = accounts()
    for volume in (100, 5_000, 150, 160):
        money.see(volume, None, now=0.0)
    assert money.upstream_status() == {"today": 160, "since_start": 160}
