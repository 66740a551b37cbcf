import pytest
from stage_play import Show, play

HOUR = 3600.0
CAPACITY = 5.0


@pytest.mark.parametrize("overload", ["reject", "queue"])
@pytest.mark.parametrize(("times", "share"), [(2, 0.95), (5, 0.90)])
def test_an_hour_of_overload_delivers_the_providers_capacity_and_never_stops(
    times: int, share: float, overload: str
) -> None:
    async def main(show: Show) -> None:
        await show.go(HOUR)
        assert show.world.truth()["on_time"] >= share * CAPACITY * HOUR
        assert show.holds("drop_rate") == []

    play(
        main,
        rate=times * CAPACITY,
        capacity=CAPACITY,
        overload=overload,
        processing_share=0,
        duplicate_share=0,
        end=False,
    )


def test_a_provider_ten_times_too_slow_for_a_full_queue_still_gets_no_ticket_too_late():
    async def main(show: Show) -> None:
        await show.go(1800)
        assert show.counters["query_stale"] + show.counters["query_expired"] < 60
        assert show.world.truth()["on_time"] >= 0.75 * 1800

    play(main, rate=20, capacity=1.0, overload="reject", processing_share=0, duplicate_share=0, end=False)
