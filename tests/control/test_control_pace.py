import pytest
from control_makers import lane_config

from pipeline.control.breaker import Mode
from pipeline.control.pace import spread, table

N, D, S, P, H = Mode.NORMAL, Mode.DEGRADED, Mode.SEVERE, Mode.OPEN, Mode.HALF_OPEN


def spread_of(pull: Mode, query: Mode, callback: Mode, drops: bool = False) -> tuple[Mode, Mode, Mode]:
    modes = spread({"pull": pull, "query": query, "callback": callback}, drops)
    return modes["pull"], modes["query"], modes["callback"]


@pytest.mark.parametrize(
    ("stage", "slots"),
    [
        ("pull", {N: 1250, D: 250, S: 250, P: 0, H: 10}),
        ("query", {N: 500, D: 250, S: 50, P: 0, H: 10}),
        ("callback", {N: 300, D: 160, S: 20, P: 0, H: 10}),
    ],
)
def test_the_table_of_workers_times_batch(stage: str, slots: dict[Mode, int]):
    paces = table(lane_config())
    assert {mode: paces[stage, mode] for mode in slots} == slots


def test_trials_are_made_by_the_workers_there_are():
    paces = table(lane_config(query={"workers": 2, "batch": 1}, breaker={"trials": 10}))
    assert paces["query", H] == 2


@pytest.mark.parametrize("mode", [N, D, P, H])
def test_a_troubled_pull_slows_nobody_else(mode: Mode):
    assert spread_of(mode, N, N) == (mode, N, N)


@pytest.mark.parametrize("mode", [N, D, P, H])
def test_a_troubled_query_slows_nobody_else(mode: Mode):
    assert spread_of(N, mode, N) == (N, mode, N)


def test_a_degraded_callback_slows_pull_and_query():
    assert spread_of(N, N, D) == (D, D, D)


@pytest.mark.parametrize("mode", [P, H])
def test_a_callback_out_of_order_slows_pull_and_query_as_far_as_they_go(mode: Mode):
    assert spread_of(N, N, mode) == (S, S, mode)
    assert spread_of(D, N, mode) == (S, S, mode)
    assert spread_of(N, P, mode) == (S, P, mode)


def test_a_high_drop_rate_degrades_pull_and_query_and_leaves_callbacks_alone():
    assert spread_of(N, N, N, drops=True) == (D, D, N)


def test_two_degraded_stages_are_severe_and_one_is_not():
    assert spread_of(D, N, N) == (D, N, N)
    assert spread_of(D, D, N) == (S, S, N)
    assert spread_of(N, D, D) == (S, S, S)
    assert spread_of(D, D, D) == (S, S, S)


def test_an_open_stage_stays_open_and_counts_as_troubled():
    assert spread_of(N, P, D) == (S, P, S)
    assert spread_of(P, H, N) == (P, H, N)


def test_a_high_drop_rate_and_one_degraded_stage_are_not_yet_severe():
    assert spread_of(D, N, N, drops=True) == (D, D, N)


def test_nobody_in_trouble_leaves_everybody_normal():
    assert spread_of(N, N, N) == (N, N, N)
