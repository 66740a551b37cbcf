"""Hard stop, credit, auth, black-out: what holds the real daemon and what lets it go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.harness import (
    LANE,
    Live,
    assert_all_delivered_once,
    assert_balanced,
    eventually,
    lane_tree,
    merged,
    running,
    settings_tree,
    upstream_runs_dry,
    world,
)

#: Minutes scaled down to seconds; the clean-up keeps its ratio.
SHORT_LIVES: dict[str, Any] = {
    "pull": {"max_age": 1.8},
    "queue": {"max_age": 2.8, "clean_every": 0.3},
    "query": {"stale_age": 2.4, "max_age": 2.9},
    "callback": {"max_age": 2.9},
    "drop_rate": {"min_total": 100},
    "breaker": {"pause": 0.2, "pause_max": 0.4},
}
NEVER_READY = {"processing_share": 0.6, "processing_time": 3600}


def alerting(url: str, tree: dict[str, Any], **changes: Any) -> dict[str, Any]:
    wecom = {"key": "robot-key", "url": f"{url}/cgi-bin/webhook/send"}
    return settings_tree({LANE: tree}, alerts={"wecom": wecom}, **changes)


async def hard_stopped(live: Live) -> None:
    await eventually(lambda: live.status()["state"] == "hard_stopped", why=live.status)


async def test_a_fifth_dropped_is_a_hard_stop_that_only_an_operator_lifts_and_callbacks_go_on() -> None:
    async with world(rate=200, **NEVER_READY, callback={"latency": 0.5}) as server:
        async with running(alerting(server.url, lane_tree(server.url, **SHORT_LIVES))) as live:
            await hard_stopped(live)
            assert live.holds("pull") >= {"drop_rate"}
            assert live.holds("query") >= {"drop_rate"}
            assert "drop_rate" not in live.holds("callback")
            async with live.http.get("/readyz") as response:
                assert response.status == 503

            # Callbacks drain, the rest dies of its age, and all of it is in the books.
            callbacks = live.daemon.lanes[LANE].callback
            await eventually(lambda: not callbacks.calling and not len(callbacks.line))
            server.world.change({"rate": 0})
            pulls, queries = server.world.ledger.counts["pulls"], server.world.ledger.counts["queries"]
            await live.all_ended(server)
            status, truth = await live.lane(), server.world.truth()
            assert status["state"] == "hard_stopped"
            assert (truth["pulls"], truth["queries"]) == (pulls, queries)
            assert status["counters"]["delivered"] == truth["delivered"] > 0
            assert truth["late"] == truth["twice"] == 0

            server.world.change({"rate": 100, "processing_share": 0})
            answer = await live.post("/api/resume", reason="fixed")
            assert "drop_rate" in answer["lanes"][LANE]["released"]
            before = live.counter("delivered")
            await eventually(lambda: live.counter("delivered") > before + 150, why=live.status)
            assert live.status()["state"] != "hard_stopped"
            assert live.status()["drop_rate"]["level"] == "ok"
            stops = [e for e in await live.events("hold") if e["detail"]["reason"] == "drop_rate"]
            assert len(stops) == 1
            await eventually(lambda: len(server.alerts) >= 2)
        told = [alert["content"] for alert in server.alerts if "Drop rate" in alert["content"]]
        assert len(told) == 1, list(server.alerts)
        assert any("Hard stop lifted" in alert["content"] for alert in server.alerts)


async def test_tickets_that_died_waiting_during_a_hard_stop_do_not_stop_the_resumed_lane_again() -> None:
    hopeless = {"processing_share": 1, "processing_time": 3600}
    async with world(rate=400, **hopeless) as server:
        # The clean-up comes every 30 s: an operator's resume may well come first.
        tree = lane_tree(
            server.url, **merged(SHORT_LIVES, {"queue": {"clean_every": 30}, "drop_rate": {"min_total": 20}})
        )
        async with running(settings_tree({LANE: tree})) as live:
            await hard_stopped(live)
            server.world.change({"rate": 0})
            lane = live.daemon.lanes[LANE]
            if lane.in_flight() < 20:
                raise RuntimeError(f"too few tickets wait to make the point: {lane.in_flight()}")
            await eventually(
                lambda: (
                    all(ticket.age(lane._clock.now()) > 3 for ticket in lane.queue.line)
                    and not live.daemon.lanes[LANE].query.asking
                )
            )
            server.world.change({"rate": 100, "processing_share": 0})
            await live.post("/api/resume")
            before = live.counter("delivered")
            await eventually(
                lambda: live.counter("delivered") > before + 50 or "drop_rate" in live.holds("query")
            )
            assert "drop_rate" not in live.holds("query")


async def test_credit_gone_holds_without_harm_and_a_probe_finds_it_back() -> None:
    async with world(rate=100, credits=60) as server:
        async with running(alerting(server.url, lane_tree(server.url))) as live:
            await eventually(lambda: {"credit"} <= live.holds("pull") & live.holds("query"))
            assert live.status()["state"] == "paused"
            await eventually(lambda: live.status()["stages"]["query"]["busy"] == 0)
            assert server.world.truth()["paid"] >= 60
            # Several probes find nothing, and nothing is lost or said again.
            asked = live.counter("queried")
            await eventually(lambda: live.counter("queried") > asked + 2)
            assert live.status()["state"] == "paused"
            server.world.change({"credits": 1_000_000})
            await eventually(lambda: live.counter("delivered") > 200)
            assert live.holds("pull") | live.holds("query") == set()
            await upstream_runs_dry(server)
            await live.all_ended(server)
            assert live.status()["drop_rate"]["dropped"] == 0
            edges = [(e["kind"], e["detail"]["by"]) for e in await live.events() if "reason" in e["detail"]]
            assert edges == [("hold", "query"), ("release", "probe")]
            await eventually(lambda: len(server.alerts) >= 2)
        assert_all_delivered_once(server.world.truth())
        texts = [alert["content"].splitlines()[0] for alert in server.alerts]
        assert ["credit is used up" in texts[0], "credit is back" in texts[1]] == [True, True]
        assert len(texts) == 2


@pytest.mark.parametrize("who", ["auth_refused", "pull_refused"])
async def test_refused_credentials_hold_and_alert_and_a_probe_finds_them_good_again(who: str) -> None:
    async with world(rate=100) as server:
        async with running(alerting(server.url, lane_tree(server.url))) as live:
            await eventually(lambda: live.counter("delivered") > 20)
            server.world.change({who: True})
            await eventually(lambda: {"auth"} <= live.holds("pull") & live.holds("query"))
            assert live.status()["state"] == "paused"
            await eventually(lambda: any("Credentials refused" in a["content"] for a in server.alerts))
            server.world.change({who: False})
            before = live.counter("delivered")
            await eventually(lambda: live.counter("delivered") > before + 50)
            await upstream_runs_dry(server)
            await live.all_ended(server)
            status = await live.lane()
            assert status["counters"]["offline"] == status["counters"]["rejected"] == 0
            assert status["drop_rate"]["dropped"] == 0
        assert_all_delivered_once(server.world.truth())


async def test_an_operator_may_resume_before_the_probe() -> None:
    async with world(rate=100, credits=0) as server:
        tree = lane_tree(server.url, query={"probe_interval": 3600})
        async with running(settings_tree({LANE: tree})) as live:
            await eventually(lambda: "credit" in live.holds("query"))
            await eventually(lambda: live.status()["stages"]["query"]["busy"] == 0)
            server.world.change({"credits": 1_000_000})
            answer = await live.post("/api/resume")
            assert "credit" in answer["lanes"][LANE]["released"]
            await eventually(lambda: live.counter("delivered") > 50)


async def test_a_refusal_from_before_the_resume_does_not_hold_again() -> None:
    async with world(rate=200, credits=0, query={"latency": 0.5, "sigma": 0.5}) as server:
        tree = lane_tree(server.url, query={"probe_interval": 3600})
        async with running(settings_tree({LANE: tree})) as live:
            await eventually(lambda: "credit" in live.holds("query"))
            assert live.status()["stages"]["query"]["busy"] > 5
            server.world.change({"credits": 1_000_000})
            await live.post("/api/resume")
            await eventually(lambda: live.counter("delivered") > 20 or "credit" in live.holds("query"))
            assert live.holds("query") == set()


async def test_a_black_out_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    quick = {"breaker": {"trip_after": 20, "pause": 0.3, "pause_max": 1.2}, "retry": {"delay": 0.2}}
    async with world(rate=100) as server:
        async with running(alerting(server.url, lane_tree(server.url, **quick))) as live:
            await eventually(lambda: live.counter("delivered") > 50)
            server.world.change({"query": {"reset": 1.0}})
            # It opens, tries and opens again, several times, each time for longer.
            await eventually(lambda: live.status()["stages"]["query"]["mode"] == "open")

            def opened_again() -> bool:
                recent = live.daemon.bus.recent(1000)
                return len([e for e in recent if e.kind == "breaker" and e.detail["after"] == "open"]) >= 3

            await eventually(opened_again)
            server.world.change({"query": {"reset": 0.0}})
            before = live.counter("delivered")
            await eventually(lambda: live.counter("delivered") > before + 100)
            await eventually(lambda: not live.holds("query") | live.holds("pull"), why=live.status)
            await upstream_runs_dry(server)
            await live.all_ended(server)
            assert_balanced(await live.lane())
            await eventually(lambda: server.alerts and "✅" in server.alerts[-1]["content"])
        assert_all_delivered_once(server.world.truth())
        breaker = [a["content"].splitlines()[0] for a in server.alerts if "reaker" in a["content"]]
        assert [text[0] for text in breaker] == ["⚠", "✅"], breaker
        others = [a["content"] for a in server.alerts if "reaker" not in a["content"]]
        assert len(others) % 2 == 0, others  # a backlog, if there was one, began and ended
