from stage_play import Show, play

from pipeline.control.gate import Reason


def test_credit_that_runs_out_holds_and_is_found_back_by_a_probe_with_nothing_lost():
    async def main(show: Show) -> None:
        await show.go(70)
        assert show.lane.state() == "paused"
        assert [event.stage for event in show.holds("credit")] == ["pull,query"]
        await show.until(lambda: show.lane.state() == "running", 90)
        assert [event.detail["by"] for event in show.releases("credit")][-1] == "probe"
        assert show.dropped == 0

    play(main, scenario="credit_gone", rate=40)


def test_tickets_that_die_of_an_empty_account_have_its_name_and_stop_nothing():
    async def main(show: Show) -> None:
        await show.go(60)
        show.world.change({"credits": 0})
        await show.go(400)
        assert show.counters["credit_expired"] > 0
        assert show.lane.controller.drop_rate.rate == 0
        assert show.holds("drop_rate") == []
        show.world.change({"credits": None})

    play(main, rate=200)


def test_refused_credentials_hold_and_are_probed():
    async def main(show: Show) -> None:
        await show.go(70)
        assert show.lane.state() == "paused"
        assert show.holds("auth")
        await show.until(lambda: show.lane.state() == "running", 90)
        assert show.dropped == 0

    play(main, scenario="auth_gone", rate=40)


def test_an_upstream_that_refuses_us_holds_too_and_is_found_back():
    async def main(show: Show) -> None:
        await show.go(30)
        show.world.change({"pull_refused": True})
        await show.go(60)
        assert show.lane.state() == "paused"
        assert "upstream" in show.holds("auth")[0].detail["detail"]
        assert show.counters["processing"], "some tickets wait, which the provider would answer"
        assert (len(show.holds("auth")), show.releases("auth")) == (1, [])
        show.world.change({"pull_refused": False})
        await show.until(lambda: show.lane.state() == "running", 60)

    play(main, rate=40)


def test_an_operator_who_has_paid_need_not_wait_for_the_probe():
    async def main(show: Show) -> None:
        await show.go(30)
        show.world.change({"credits": 0})
        await show.go(5)
        show.world.change({"credits": None})
        assert show.lane.resume("operator") == ["credit"]
        assert show.lane.state() == "running"
        await show.go(10)

    play(main, rate=40)


def test_a_probe_pulls_no_ticket_that_the_journal_could_not_take():
    async def main(show: Show) -> None:
        await show.go(30)
        show.world.change({"credits": 0})
        await show.until(lambda: bool(show.holds("credit")), 60)
        show.lane.journal_trouble("disk full")
        await show.go(300)  # until nothing waits that a probe could ask about
        calls = show.source.calls
        await show.go(120)
        assert show.source.calls == calls
        show.lane.journal_trouble(None)
        show.world.change({"credits": None})
        await show.until(lambda: show.lane.state() == "running", 90)

    play(main, rate=40)


def test_an_upstream_that_took_us_back_is_found_also_while_the_queue_is_full():
    async def main(show: Show) -> None:
        await show.go(20)
        controller = show.lane.controller
        show.lane.pull.refuse("HTTP 401")
        controller.hold(("pull",), Reason.BACKPRESSURE, "queue", "full", "by itself")
        assert await show.lane.probe_once()
        assert not controller.held(Reason.AUTH)

    play(main, rate=10)
