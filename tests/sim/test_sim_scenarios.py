import asyncio

import pytest

from pipeline.errors import ConfigError
from pipeline.sim.behaviour import Behaviour, changed
from pipeline.sim.scenarios import SCENARIOS, Script, Step, find_script, run_scenario
from pipeline.sim.virtual import VirtualClock, run_virtual
from pipeline.sim.world import World

BASE = Behaviour(rate=7, page_min=1000, page_max=1000)


def seen(script: Script, moments: list[float], base: Behaviour = BASE) -> list[Behaviour]:
    """The behaviour at each of these moments of the script."""

    async def main(clock: VirtualClock) -> list[Behaviour]:
        world = World(clock, base)
        task = asyncio.create_task(run_scenario(world, clock, script))
        found = []
        for moment in moments:
            await clock.sleep(moment - clock.monotonic())
            found.append(world.behaviour)
        task.cancel()
        return found

    return run_virtual(main)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"'quiet' is unknown; known: .*black_out.*calm.*tour"):
        find_script("quiet")


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_is_in_order_and_valid(name):
    script = find_script(name)
    moments = [step.at for step in script.steps]
    assert moments == sorted(moments)
    assert not script.loop or script.loop > moments[-1]
    for step in script.steps:
        changed(BASE, step.changes(BASE) if callable(step.changes) else step.changes)


def test_calm_changes_nothing():
    assert seen(find_script("calm"), [1, 1000]) == [BASE, BASE]


def test_a_black_out_lasts_90_seconds_from_the_first_minute():
    resets = [b.query.reset for b in seen(find_script("black_out"), [59, 61, 149, 151])]
    assert resets == [0, 1, 1, 0]


def test_credit_goes_and_comes_back():
    async def main(clock: VirtualClock) -> list[float]:
        world = World(clock, BASE)
        task = asyncio.create_task(run_scenario(world, clock, find_script("credit_gone")))
        found = []
        for _ in range(3):
            await clock.sleep(50)
            found.append(world.credits_left())
        await task
        return found

    assert [left > 0 for left in run_virtual(main)] == [True, False, True]


def test_steps_do_not_add_up():
    script = Script("x", (Step(0, {"rate": 1}), Step(10, {"pull_cap": 1}), Step(20, {})))
    found = [(b.rate, b.pull_cap) for b in seen(script, [5, 15, 25])]
    assert found == [(1, 50), (7, 1), (7, 50)]


@pytest.mark.parametrize(("capacity", "expected"), [(None, (7, 35)), (40.0, (40, 200))])
def test_overload_is_five_times_the_capacity(capacity, expected):
    base = changed(BASE, {"capacity": capacity})
    found = seen(find_script("overload"), [1], base)[0]
    assert (found.capacity, found.rate) == expected


def test_the_tour_goes_round_again_on_time():
    tour = find_script("tour")
    moments = [10.0, 30.0, 70.0, 115.0, 150.0, 190.0, 240.0]
    first = seen(tour, moments)
    assert first == seen(tour, [moment + 3 * tour.loop for moment in moments])
    assert first[0] == first[3] == first[6] == BASE
    assert first[1].query.error > 0
    assert first[2].query.reset == 1
    assert first[4].callback.latency > 1
    assert first[5].credits == 0
