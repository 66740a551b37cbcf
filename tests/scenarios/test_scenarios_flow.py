from stage_play import Show, play

from pipeline.events import Kind


def test_three_hundred_tickets_a_second_are_all_delivered_on_time_exactly_once():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.lane.controller.room.peak <= 1.05 * 800
        assert show.of_kind(Kind.HOLD) == []

    async def ended(show: Show) -> None:
        await main(show)
        show.world.change({"rate": 0})
        await show.until(lambda: not show.waiting_upstream and not show.lane.in_flight(), 60)
        truth = show.world.truth()
        assert truth["handed_out"] > 17_000
        assert truth["on_time"] == truth["delivered"] == truth["handed_out"]
        assert truth["paid_again"] == 0
        assert show.counters["processing"] > 0.3 * truth["handed_out"]

    play(ended, rate=300, duplicate_share=0)


def test_a_queue_that_is_full_but_flowing_is_paced_and_never_held():
    async def main(show: Show) -> None:
        await show.go(8)
        assert show.lane.controller.stages["query"].busy == 500
        assert await show.delivered_per_second(8) > 600
        assert show.holds("backpressure") == []
        assert show.lane.controller.room.peak <= 1.05 * 800

    play(main, rate=1500)


def test_an_upstream_with_nothing_to_give_is_asked_seldom_and_a_new_ticket_found_soon():
    async def main(show: Show) -> None:
        await show.go(60)
        before = show.source.calls
        await show.go(60)
        assert show.source.calls - before < 1000
        show.world.change({"rate": 1})
        assert await show.until(lambda: show.counters["delivered"] > 0, 30) < 10

    play(main, rate=0)


def test_one_worker_alone_asks_about_every_two_seconds():
    one = {"workers": 1, "batch": 1}

    async def main(show: Show) -> None:
        await show.go(100)
        assert 35 <= show.source.calls <= 65

    play(main, rate=0, config={"pull": one})


def test_duplicates_join_the_first_and_every_trace_gets_its_callback():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["joined"] > 300
        assert show.counters["answered"] + show.counters["offline"] < show.counters["delivered"]

    play(main, scenario="duplicates", rate=100)


def test_duplicates_are_dropped_where_the_configuration_says_so():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["joined"] == 0
        assert show.counters["duplicates"] > 1000
        assert show.world.truth()["paid_again"] == 0

    play(main, scenario="duplicates", rate=50, config={"queue": {"dedupe": "drop"}})


def test_the_very_same_ticket_handed_out_again_is_a_duplicate():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["duplicates"] > 100
        assert show.world.truth()["paid_again"] == 0

    play(main, rate=30, repeat_share=0.3, duplicate_share=0)


def test_more_tickets_than_were_asked_for_are_cut_at_one_batch_above_the_high_mark():
    async def main(show: Show) -> None:
        await show.go(10)
        assert show.counters["overflow"] > 1000
        assert show.of_kind(Kind.OVERFLOW)
        assert show.lane.controller.room.peak <= 1000

    play(main, rate=3000, ignore_limit=True, pull_cap=100_000, backlog_max=100_000, end=False)
