from stage_play import Show, play

from pipeline.events import Kind

NO_RETRY = {"callback": {"retries": 0}}


def test_a_hard_stop_lets_callbacks_drain_and_resuming_does_not_stop_again_at_once():
    async def main(show: Show) -> None:
        await show.go(60)
        show.world.change({"callback": {"error": 0.5}})
        await show.until(lambda: show.lane.state() == "hard_stopped", 120)
        assert [event.stage for event in show.holds("drop_rate")] == ["pull,query"]
        assert show.holds("drop_rate")[0].detail["rate"] >= 0.20
        await show.until(lambda: len(show.lane.callback.line) + len(show.lane.callback.calling) == 0, 30)
        await show.go(600)
        assert show.lane.state() == "hard_stopped"
        show.world.change({"callback": {"error": 0.0}})
        assert "drop_rate" in show.lane.resume("operator", "receiver is well")
        await show.go(30)
        assert show.lane.state() == "running"
        assert len(show.holds("drop_rate")) == 1
        assert await show.delivered_per_second(20) >= 0.9 * 50

    play(main, rate=50, config=NO_RETRY)


def test_the_drop_rate_slows_then_trips_then_stops():
    async def main(show: Show) -> None:
        await show.go(60)
        show.world.change({"callback": {"error": 0.5}})
        await show.until(lambda: show.lane.state() == "hard_stopped", 200)
        levels = [event.detail["after"] for event in show.of_kind(Kind.DROP_RATE)]
        assert levels[:1] == ["degrade"]
        assert "trip" in levels
        assert levels[-1] == "stop"
        assert show.of_kind(Kind.BREAKER, "pull")[0].detail["why"].startswith("drop rate")
        show.world.change({"callback": {"error": 0.0}})

    play(main, rate=50, config=NO_RETRY)


def test_after_a_pause_no_pull_begins_and_what_was_pulled_is_delivered():
    async def main(show: Show) -> None:
        await show.go(20)
        show.lane.pause("operator", "lunch")
        calls = show.source.calls
        assert show.lane.state() == "paused"
        await show.go(30)
        assert show.source.calls == calls
        assert show.lane.in_flight() == 0
        assert show.lane.resume("operator") == ["manual"]
        await show.go(10)
        assert show.source.calls > calls

    play(main, rate=100)


def test_a_pause_with_a_time_ends_by_itself():
    async def main(show: Show) -> None:
        await show.go(10)
        show.lane.pause("operator", "deploy", 30)
        await show.go(29)
        assert show.lane.state() == "paused"
        await show.go(2)
        assert show.lane.state() == "running"

    play(main, rate=20)


def test_a_stopped_lane_does_nothing_until_it_is_started():
    async def main(show: Show) -> None:
        await show.go(10)
        await show.lane.stop("operator")
        await show.go(1)
        delivered = show.counters["delivered"]
        await show.go(20)
        assert show.lane.state() == "stopped"
        assert show.counters["delivered"] - delivered < 300
        await show.lane.start("operator")
        assert await show.delivered_per_second(20) > 40

    play(main, rate=50)


def test_the_success_limit_holds_at_the_delivery_that_reaches_it():
    async def main(show: Show) -> None:
        await show.until(lambda: bool(show.holds("success_limit")), 30)
        delivered = [step for step in show.lane.recent_steps() if step.what == "delivered"]
        assert show.holds("success_limit")[0].at - delivered[9].at < 0.01

    play(main, rate=20, end=False, config={"callback": {"success_limit": 10}})


def test_the_success_limit_ends_pulling_and_resume_starts_it_afresh():
    async def main(show: Show) -> None:
        await show.until(lambda: show.lane.state() == "paused", 60)
        assert show.holds("success_limit")
        assert show.counters["delivered"] >= 500
        await show.go(20)
        first = show.counters["delivered"]
        assert first < 1000
        show.lane.resume("operator")
        await show.until(lambda: len(show.holds("success_limit")) == 2, 60)
        assert show.counters["delivered"] >= first + 500

    play(main, rate=50, end=False, config={"callback": {"success_limit": 500}})


def test_draining_lets_everything_under_way_out():
    async def main(show: Show) -> None:
        await show.go(20)
        show.lane.begin_drain("SIGTERM")
        assert show.lane.state() == "draining"
        assert await show.lane.drain(25)
        assert show.lane.in_flight() - show.lane.queue.line.delayed <= 0

    play(main, rate=100, end=False)


def test_a_high_mark_lowered_while_running_is_kept_from_then_on():
    async def main(show: Show) -> None:
        await show.go(20)
        queue = show.config.queue.model_copy(update={"high_water": 200})
        show.lane.reconfigure(show.config.model_copy(update={"queue": queue}))
        await show.go(10)
        for _ in range(30):
            await show.go(1)
            assert show.lane.queue.depth <= 210

    play(main, rate=300, config={"query": {"workers": 10}})
