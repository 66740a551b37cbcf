from itertools import pairwise

from control_makers import PROPERTY
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from pipeline.config import RetryConfig
from pipeline.control.budget import RetryBudget


def granted(budget: RetryBudget, now: float, wanted: int = 10_000) -> int:
    for number in range(wanted):
        if not budget.spend(now):
            return number
    return wanted


def minute(budget: RetryBudget, start: float, calls_per_second: int = 0) -> list[int]:
    """Everybody retries whenever it is allowed; how many were, in each quarter second of a minute."""
    grants = []
    for quarter in range(240):
        now = start + quarter / 4
        for _ in range(calls_per_second // 4):
            budget.call()
        grants.append(granted(budget, now))
    return grants


def test_an_outage_without_first_calls_is_retried_three_times_a_second():
    # a retry is itself a recent call: r = 0.2 r + 180
    total = sum(minute(RetryBudget(RetryConfig()), 100.0))
    assert 200 <= total <= 225


def test_twenty_per_cent_of_the_calls_come_on_top():
    # 40 a second: r = 0.2 (2400 + r) + 180
    total = sum(minute(RetryBudget(RetryConfig()), 100.0, calls_per_second=40))
    assert 780 <= total <= 825


def test_the_second_minute_has_no_more_than_the_first():
    budget = RetryBudget(RetryConfig())
    first, second = sum(minute(budget, 100.0)), sum(minute(budget, 160.0))
    assert second <= first


def test_the_budget_is_never_spent_in_one_burst():
    budget = RetryBudget(RetryConfig())
    assert granted(budget, 100.0) <= 20
    assert granted(budget, 100.0) == 0


def test_a_long_silence_saves_up_no_more_than_a_burst():
    budget = RetryBudget(RetryConfig())
    granted(budget, 100.0)
    assert granted(budget, 100_000.0) <= 20


def test_a_burst_after_an_hour_of_calls_is_bounded_too():
    budget = RetryBudget(RetryConfig())
    for _ in range(36_000):
        budget.call()
    assert granted(budget, 3600.0) <= 20


def test_while_retries_fail_the_flow_is_even_and_not_in_herds():
    grants = minute(RetryBudget(RetryConfig()), 100.0)
    assert max(grants[8:]) <= 3


def test_a_retry_that_succeeds_gives_its_place_back():
    budget = RetryBudget(RetryConfig())
    granted(budget, 100.0)
    assert not budget.spend(100.0)
    budget.refund(100.0)
    assert 1 <= granted(budget, 100.0) <= 3


def test_when_the_far_side_is_back_retries_come_to_full_speed_within_seconds():
    budget, now, rounds = RetryBudget(RetryConfig()), 100.0, []
    granted(budget, now)
    for _ in range(12):
        now += 0.5
        number = granted(budget, now, wanted=500)
        for _ in range(number):
            budget.refund(now)
        rounds.append(number)
    assert all(later >= sooner for sooner, later in pairwise(rounds))
    assert rounds[-1] == 500


def test_successes_of_ten_seconds_ago_leave_no_store_of_retries():
    budget = RetryBudget(RetryConfig())
    for _ in range(500):
        budget.refund(100.0)
    assert granted(RetryBudget(RetryConfig()), 111.0) <= granted(budget, 111.0) <= 20


def test_a_changed_budget_counts_from_the_next_retry_on():
    budget = RetryBudget(RetryConfig())
    minute(budget, 100.0)
    budget.config = RetryConfig(per_second=30)
    assert sum(minute(budget, 160.0)) >= 1800


def test_even_the_smallest_budget_lets_a_retry_through_at_last():
    budget = RetryBudget(RetryConfig(per_second=0.01, share=0.01))
    assert any(budget.spend(float(second)) for second in range(1000))


class BudgetMachine(RuleBasedStateMachine):
    """In any 60 s: retries ≤ share × calls + 60 × per_second, but for those that succeeded."""

    SHARE, PER_SECOND = 0.25, 0.5

    def __init__(self) -> None:
        super().__init__()
        self.budget = RetryBudget(RetryConfig(share=self.SHARE, per_second=self.PER_SECOND))
        self.now = 0.5
        self.calls: list[float] = []
        self.retries: list[float] = []
        self.refunds: list[float] = []

    @rule(count=st.integers(1, 30))
    def call(self, count: int) -> None:
        for _ in range(count):
            self.budget.call()
            self.calls.append(self.now)

    @rule(count=st.integers(1, 40))
    def retry(self, count: int) -> None:
        for _ in range(count):
            if self.budget.spend(self.now):
                self.retries.append(self.now)
        self._check()

    @rule(share=st.sampled_from([0.1, 1.0]))
    def refund(self, share: float) -> None:
        for _ in range(int((len(self.retries) - len(self.refunds)) * share)):
            self.budget.refund(self.now)
            self.refunds.append(self.now)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 5.0, 20.0, 61.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def an_outage_in_which_all_retry(self) -> None:
        for _ in range(30):
            self.now += 1.0
            while self.budget.spend(self.now):
                self.retries.append(self.now)
        self._check()

    def _check(self) -> None:
        """Every minute that begins with a retry and reaches back from now."""
        for start in {moment for moment in self.retries if self.now - moment <= 60}:
            retries, calls, refunds = (
                sum(start <= moment for moment in moments)
                for moments in (self.retries, self.calls, self.refunds)
            )
            # What was banked by successes of the ten seconds before `start` is theirs as well.
            refunds += sum(start - 10 <= moment < start for moment in self.refunds)
            budget = self.SHARE * (calls + retries) + self.PER_SECOND * 60
            assert retries <= budget + 2 * refunds + 1


BudgetMachine.TestCase.settings = PROPERTY
TestBudgetMachine = BudgetMachine.TestCase
