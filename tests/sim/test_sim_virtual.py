import asyncio
import threading

import pytest

from pipeline.sim.virtual import START, VirtualClock, VirtualLoop, run_virtual


def test_an_hour_of_sleep_takes_no_time_and_moves_both_clocks():
    async def main(clock: VirtualClock) -> tuple[float, float]:
        await clock.sleep(3600)
        return clock.monotonic(), clock.now()

    monotonic, now = run_virtual(main)
    assert monotonic == pytest.approx(3600)
    assert now == pytest.approx(START + 3600)


def test_sleepers_wake_in_the_order_of_their_timers():
    async def main(clock: VirtualClock) -> list[float]:
        woken: list[float] = []

        async def sleeper(seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(clock.monotonic())

        await asyncio.gather(*(sleeper(s) for s in (30, 0.001, 86_400 * 3, 7)))
        return woken

    assert run_virtual(main) == pytest.approx([0.001, 7, 30, 86_400 * 3])


def test_a_timeout_ends_a_call_at_its_virtual_moment():
    async def main(clock: VirtualClock) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(290):
                await clock.sleep(3600)
        return clock.monotonic()

    assert run_virtual(main) == pytest.approx(290)


def test_a_world_in_which_everybody_sleeps_for_ever_is_called_a_deadlock():
    async def main(_: VirtualClock) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        run_virtual(main)


def test_time_stands_still_while_a_thread_works():
    release = threading.Event()

    async def main(clock: VirtualClock) -> float:
        async with asyncio.timeout(5):
            work = asyncio.get_running_loop().run_in_executor(None, release.wait, 0.1)
            await work
        return clock.monotonic()

    assert run_virtual(main) == 0


def test_tasks_left_behind_are_cancelled_at_the_end():
    ended: list[str] = []

    async def left() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append("cancelled")

    async def main(clock: VirtualClock) -> None:
        main.task = asyncio.create_task(left())  # type: ignore[attr-defined]
        await clock.sleep(1)

    run_virtual(main)
    assert ended == ["cancelled"]


def test_a_wall_step_shows_until_it_is_adopted():
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    heard: list[float] = []
    clock.on_adopt(heard.append)
    clock.set_wall_step(3600)
    assert (clock.step(), clock.now(), heard) == (3600, START, [])
    clock.adopt()
    assert (clock.step(), clock.now(), heard) == (0, START + 3600, [3600])
    loop.close()
