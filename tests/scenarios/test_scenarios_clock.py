from stage_play import Show, play

from pipeline.events import Kind


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


def test_tickets_too_old_when_handed_out_expire_at_the_pull_and_do_not_count_as_dropped():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["pull_expired"] > 100
        assert show.dropped == 0
        assert show.of_kind(Kind.CLOCK_SKEW) == []

    play(main, rate=20, age=150, age_spread=60)
