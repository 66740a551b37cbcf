import time
from types import SimpleNamespace

import pytest

from pipeline import clock as module
from pipeline.clock import SystemClock


class Machine:
    """A machine's clocks, set by hand; `suspended` counts in boot time and not in monotonic time."""

    def __init__(self) -> None:
        self.wall, self.up, self.suspended = 1_760_000_000.0, 5_000.0, 0.0

    def pass_time(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.suspended += seconds


def put_in_place(monkeypatch: pytest.MonkeyPatch, *, boottime: bool) -> Machine:
    machine = Machine()
    fake = SimpleNamespace(time=lambda: machine.wall, monotonic=lambda: machine.up)
    if boottime:
        fake.CLOCK_BOOTTIME = 7
        fake.clock_gettime = lambda which: {7: machine.up + machine.suspended}[which]
    monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(SystemClock, "monotonic", staticmethod(fake.monotonic))
    return machine


@pytest.fixture(params=[True, False], ids=["boottime", "monotonic only"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return put_in_place(monkeypatch, boottime=request.param)


def test_now_is_the_wall_clock_and_goes_on_with_time(machine: Machine):
    clock = SystemClock()
    assert clock.now() == machine.wall
    machine.pass_time(100)
    assert clock.now() == machine.wall
    assert clock.step() == 0.0


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_an_hours_step_of_the_wall_clock_leaves_now_steady_and_shows_as_a_step(machine: Machine, step: float):
    clock = SystemClock()
    before, monotonic = clock.now(), clock.monotonic()
    machine.wall += step
    machine.pass_time(5)
    assert clock.now() == before + 5
    assert clock.monotonic() == monotonic + 5
    assert clock.step() == step


def test_a_step_adopted_is_no_step_any_more(machine: Machine):
    clock = SystemClock()
    machine.wall += 3600
    clock.adopt()
    assert clock.now() == machine.wall
    assert clock.step() == 0.0


def test_whoever_keeps_moments_hears_how_far_they_are_off_and_a_suspension_is_no_part_of_it(
    monkeypatch: pytest.MonkeyPatch,
):
    machine = put_in_place(monkeypatch, boottime=True)
    clock = SystemClock()
    heard: list[tuple[float, float]] = []
    clock.on_adopt(lambda step: heard.append((step, clock.now())))
    machine.sleep(600)  # that time did pass, for the tickets too
    machine.wall += 3600
    clock.adopt()
    assert heard == [(3600.0, machine.wall)]


def test_a_machine_that_was_suspended_wakes_up_with_older_tickets(monkeypatch: pytest.MonkeyPatch):
    machine = put_in_place(monkeypatch, boottime=True)
    clock = SystemClock()
    before = clock.now()
    machine.sleep(600)
    assert clock.step() == 0.0
    assert clock.now() == machine.wall == before + 600
    assert clock.step() == 0.0


def test_durations_leave_out_the_time_the_machine_was_suspended(machine: Machine):
    clock = SystemClock()
    began = clock.monotonic()
    machine.sleep(600)
    machine.pass_time(5)
    clock.step()
    assert clock.monotonic() == began + 5


def test_a_clock_set_during_a_suspension_shows_as_a_step_of_what_was_set(monkeypatch: pytest.MonkeyPatch):
    machine = put_in_place(monkeypatch, boottime=True)
    clock = SystemClock()
    machine.sleep(600)
    machine.wall += 3600
    assert clock.step() == 3600.0
    clock.adopt()
    assert clock.step() == 0.0
    assert clock.now() == machine.wall


def test_a_suspension_adopted_is_not_added_again(monkeypatch: pytest.MonkeyPatch):
    machine = put_in_place(monkeypatch, boottime=True)
    clock = SystemClock()
    machine.sleep(600)
    clock.adopt()
    assert clock.step() == 0.0
    assert clock.now() == machine.wall


def test_short_suspensions_add_up(monkeypatch: pytest.MonkeyPatch):
    machine = put_in_place(monkeypatch, boottime=True)
    clock = SystemClock()
    for _ in range(100):
        machine.sleep(0.25)
        assert 0.0 <= clock.step() <= 0.5
    assert machine.wall - clock.now() <= 0.5


def test_reading_two_clocks_one_after_the_other_is_no_sleep(monkeypatch: pytest.MonkeyPatch):
    machine = put_in_place(monkeypatch, boottime=True)
    clock = SystemClock()
    before = clock.now()
    machine.suspended += 0.5
    clock.step()
    assert clock.now() == before


def test_without_a_clock_that_counts_in_sleep_a_suspension_shows_as_a_step(monkeypatch: pytest.MonkeyPatch):
    machine = put_in_place(monkeypatch, boottime=False)
    clock = SystemClock()
    machine.sleep(600)
    assert clock.step() == 600.0


def test_the_real_clock_tells_the_real_time():
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    assert abs(clock.step()) < 5
    assert clock.monotonic() <= clock.monotonic()
    assert clock.now() <= clock.now()


async def test_sleeping_for_nothing_returns():
    await SystemClock().sleep(0)
