from typing import Any

import pytest
from stage_play import Show, WatchedSource, play

from pipeline.events import Kind
from pipeline.ports import Pulled


class UndatedSource(WatchedSource):
    async def pull(self, limit: int, timeout: float) -> Pulled:
        pulled = await super().pull(limit, timeout)
        for ticket in pulled.tickets:
            ticket.stamp = None
        return pulled


def undated(source: WatchedSource, provider: Any, sink: Any) -> tuple[Any, Any, Any]:
    return UndatedSource(source), provider, sink


def test_a_wrong_time_zone_is_named_and_not_suffered_in_silence():
    async def main(show: Show) -> None:
        await show.go(30)
        (skew,) = show.of_kind(Kind.CLOCK_SKEW)
        assert abs(skew.detail["offset"] - 8 * 3600) < 10
        assert "timezone" in skew.detail["likely"]
        assert show.counters["pull_expired"] == show.counters["pulled"] > 0

    play(main, scenario="wrong_zone", rate=20)


def test_a_wall_clock_set_by_an_hour_drops_nothing_and_is_said_once():
    async def main(show: Show) -> None:
        await show.go(30)
        for step in (3600.0, -3600.0):
            show.clock.set_wall_step(step)
            await show.go(60)
            assert show.dropped == 0
            assert show.counters["pull_expired"] == 0
            show.clock.set_wall_step(0)
            await show.go(10)
        offsets = [event.detail["offset"] for event in show.of_kind(Kind.CLOCK_SKEW)]
        assert offsets == [3600, 0, -3600, 0]

    play(main, rate=30)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_tickets_dated_by_our_own_clock_neither_die_nor_live_on_when_it_is_set_right(step: float):
    async def main(show: Show) -> None:
        await show.go(30)
        show.clock.set_wall_step(step)
        show.clock.adopt()
        status = show.lane.status()
        assert status["queue"]["pending"] > 20
        assert 0 < status["queue"]["oldest_age"] < 60
        assert all(0 <= seen.age < 60 for seen in show.lane.recent_steps())
        await show.go(30)
        assert show.dropped == show.counters["pull_expired"] == 0

    # The world lives by the same clock, so its own books are not asked at the end.
    play(main, config={"query": {"workers": 1}}, ports=undated, end=False, rate=30, query={"latency": 0.5})


def test_tickets_too_old_when_handed_out_expire_at_the_pull_and_do_not_count_as_dropped():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["pull_expired"] > 100
        assert show.dropped == 0
        assert show.of_kind(Kind.CLOCK_SKEW) == []

    play(main, rate=20, age=150, age_spread=60)
