"""REST: what an operator types and what comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from fake_daemon import FakeDaemon

from pipeline.config import WebConfig
from pipeline.control.gate import Reason
from pipeline.errors import CommandError
from pipeline.logs import register_secret
from pipeline.web.app import WebServer


async def error_of(response: aiohttp.ClientResponse) -> tuple[int, str, str]:
    body = await response.json()
    assert set(body["error"]) == {"code", "message"}
    return response.status, body["error"]["code"], body["error"]["message"]


async def test_status_shows_version_uptime_now_and_every_lane(http, daemon):
    async with http.get("/api/status") as response:
        status = await response.json()
    assert response.status == 200
    assert set(status) == {"version", "uptime", "now", "lanes"}
    assert set(status["lanes"]) == {"shopee", "lazada"}
    assert status["uptime"] >= 0
    assert abs(status["now"] - daemon.clock.now()) < 5


async def test_status_can_be_asked_for_one_lane(http):
    async with http.get("/api/status?lane=lazada") as response:
        assert set((await response.json())["lanes"]) == {"lazada"}


async def test_a_bare_post_pauses_every_lane(http, daemon):
    async with http.post("/api/pause") as response:
        answer = await response.json()
    assert response.status == 200
    assert answer["ok"] is True
    for name, lane in daemon.lanes.items():
        assert lane.calls == [("pause", "api 127.0.0.1", "", None)]
        assert answer["lanes"][name]["state"] == "paused"
        assert answer["lanes"][name]["holds"]["pull"][0]["reason"] == "manual"
        assert answer["lanes"][name]["released"] == []


async def test_a_secret_that_was_pasted_as_the_reason_is_told_to_nobody(http, daemon):
    register_secret("canary-pasted")
    async with http.post("/api/pause", json={"reason": "try canary-pasted"}) as response:
        assert response.status == 200
    assert daemon.lanes["shopee"].calls == [("pause", "api 127.0.0.1", "try ***", None)]


async def test_pause_takes_a_lane_a_reason_and_a_time(http, daemon):
    body = {"reason": "维护", "for": 60}
    async with http.post("/api/pause?lane=shopee", json=body) as response:
        assert set((await response.json())["lanes"]) == {"shopee"}
    assert daemon.lanes["shopee"].calls == [("pause", "api 127.0.0.1", "维护", 60.0)]
    assert daemon.lanes["lazada"].calls == []


async def test_resume_names_what_it_released(http, daemon):
    await http.post("/api/pause?lane=shopee")
    async with http.post("/api/resume", json={"reason": "done"}) as response:
        lanes = (await response.json())["lanes"]
    assert lanes["shopee"]["released"] == ["manual"]
    assert lanes["lazada"]["released"] == []
    assert daemon.lanes["lazada"].calls == [("resume", "api 127.0.0.1", "done")]


async def test_stop_and_start_switch_the_workers_of_one_lane(http, daemon):
    async with http.post("/api/stop?lane=shopee") as response:
        assert (await response.json())["lanes"]["shopee"]["state"] == "stopped"
    async with http.post("/api/start?lane=shopee") as response:
        assert (await response.json())["lanes"]["shopee"]["state"] == "running"
    assert [call[0] for call in daemon.lanes["shopee"].calls] == ["stop", "start"]


async def test_shutdown_begins_the_drain_and_answers(http, daemon):
    async with http.post("/api/shutdown") as response:
        assert response.status == 200
        assert (await response.json())["ok"] is True
    assert daemon.shutdowns == ["api 127.0.0.1"]


async def test_shutdown_may_name_the_only_lane(http, daemon):
    del daemon.lanes["lazada"]
    async with http.post("/api/shutdown?lane=nowhere") as response:
        assert response.status == 404
    async with http.post("/api/shutdown?lane=shopee") as response:
        assert response.status == 200
    assert daemon.shutdowns == ["api 127.0.0.1"]


async def test_shutdown_of_one_lane_of_several_is_refused(http, daemon):
    async with http.post("/api/shutdown?lane=shopee") as response:
        assert (await error_of(response))[0] == 400
    assert daemon.shutdowns == []


async def test_an_empty_body_is_fine_whatever_its_content_type(http):
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/json"):
        async with http.post("/api/pause", data=b"", headers={"Content-Type": kind}) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{", "JSON"),
        (b"[]", "object"),
        (b"null", "object"),
        (b"reason=x", "JSON"),
        (b'{"why": "x"}', "why"),
        (b'{"reason": 5}', "reason"),
        (json.dumps({"reason": "x" * 201}).encode(), "reason"),
        (b'{"for": 0}', "for"),
        (b'{"for": -1}', "for"),
        (b'{"for": 86401}', "for"),
        (b'{"for": true}', "for"),
        (b'{"for": "60"}', "for"),
        (b'{"for": null}', "for"),
    ],
)
async def test_a_wrong_body_is_400_names_the_field_and_changes_nothing(http, daemon, body, named):
    async with http.post("/api/pause", data=body) as response:
        status, code, message = await error_of(response)
    assert (status, code) == (400, "bad_request")
    assert named in message
    assert daemon.lanes["shopee"].calls == []


@pytest.mark.parametrize("verb", ["resume", "start", "stop", "shutdown"])
async def test_only_pausing_takes_a_time(http, daemon, verb):
    async with http.post(f"/api/{verb}", json={"for": 60}) as response:
        status, _, message = await error_of(response)
    assert status == 400
    assert "for" in message
    assert daemon.lanes["shopee"].calls == []


async def test_a_body_above_64_kilobytes_is_413_with_and_without_its_length(http, daemon):
    async def chunks() -> Any:
        for _ in range(5):
            yield b"x" * 16_384

    for data in (b"x" * 65_537, chunks()):
        async with http.post("/api/pause", data=data) as response:
            assert (await error_of(response))[0] == 413
    assert daemon.lanes["shopee"].calls == []


async def test_an_unknown_lane_is_404_everywhere(http, daemon):
    for method, path in (("GET", "status"), ("GET", "events"), ("POST", "pause"), ("POST", "stop")):
        async with http.request(method, f"/api/{path}?lane=nowhere") as response:
            status, code, message = await error_of(response)
        assert (status, code) == (404, "unknown_lane")
        assert message == "there is no lane named 'nowhere'; known: lazada, shopee"


async def test_an_empty_lane_name_does_not_mean_every_lane(http, daemon):
    async with http.post("/api/pause?lane=") as response:
        assert response.status == 404
    assert daemon.lanes["shopee"].calls == []


@pytest.mark.parametrize("query", ["lan=shopee", "lane=shopee&lane=lazada", "token=x"])
async def test_a_mistyped_or_doubled_parameter_is_refused(http, daemon, query):
    async with http.post(f"/api/pause?{query}") as response:
        assert (await error_of(response))[0] == 400
    assert daemon.lanes["shopee"].calls == []


async def test_a_wrong_method_is_405_with_allow(http):
    async with http.get("/api/pause") as response:
        assert (await error_of(response))[:2] == (405, "method_not_allowed")
        assert response.headers["Allow"] == "POST"
    async with http.delete("/api/status") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET,HEAD"


async def test_an_unknown_path_is_404_in_json(http):
    async with http.get("/api/nothing") as response:
        assert (await error_of(response))[:2] == (404, "not_found")


async def test_head_works_where_get_does(http):
    for path in ("/api/status", "/api/events", "/livez", "/readyz", "/metrics", "/openapi.json", "/"):
        async with http.head(path) as response:
            assert response.status == 200
            assert await response.read() == b""


async def test_a_lanes_refusal_keeps_its_status_and_the_others_still_obey(http, daemon):
    daemon.lanes["shopee"].fails = CommandError("the lane is draining")
    async with http.post("/api/pause") as response:
        assert await error_of(response) == (409, "conflict", "the lane is draining")
    assert daemon.lanes["lazada"].state == "paused"


async def test_a_fault_of_ours_says_nothing_of_its_cause(http, daemon):
    daemon.lanes["shopee"].fails = RuntimeError("phone=canary-1234")
    async with http.get("/api/status") as response:
        assert await error_of(response) == (500, "internal_error", "internal error")


async def test_events_come_newest_first_and_as_many_as_asked_for(http, daemon):
    for number in range(150):
        daemon.publish(lane="shopee" if number % 2 else "lazada", number=number)
    async with http.get("/api/events") as response:
        events = (await response.json())["events"]
    assert [event["detail"]["number"] for event in events] == list(range(149, 49, -1))
    async with http.get("/api/events?limit=2&lane=shopee") as response:
        events = (await response.json())["events"]
    assert [event["detail"]["number"] for event in events] == [149, 147]


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "+5", "1.5", "many", "", "%D9%A5", "1_0", "9" * 5000])
async def test_a_bad_limit_is_400_and_named(http, limit):
    async with http.get(f"/api/events?limit={limit}") as response:
        status, _, message = await error_of(response)
    assert status == 400
    assert "limit" in message


async def test_a_manual_pause_or_stop_stays_ready(http, daemon):
    for verb in ("pause", "stop"):
        await http.post(f"/api/{verb}?lane=shopee")
        async with http.get("/readyz") as response:
            assert response.status == 200
            assert await response.json() == {"ready": True}


async def _readiness(http: aiohttp.ClientSession) -> tuple[int, str]:
    async with http.get("/readyz") as response:
        return response.status, " ".join((await response.json()).get("reasons", []))


async def test_what_makes_it_unready_is_said(http, daemon):
    daemon.ready = False
    status, why = await _readiness(http)
    assert (status, "not all lanes" in why) == (503, True)
    daemon.ready, daemon.draining = True, True
    status, why = await _readiness(http)
    assert (status, "draining" in why) == (503, True)
    daemon.draining = False
    daemon.lanes["shopee"].state = "hard_stopped"
    daemon.lanes["lazada"].state = "stopped"
    status, why = await _readiness(http)
    assert status == 503
    assert "shopee is hard stopped" in why
    assert "lazada has failed" in why


async def test_it_is_alive_even_while_it_is_not_ready(http, daemon):
    daemon.ready = False
    async with http.get("/livez") as response:
        assert response.status == 200


async def test_an_order_is_carried_out_though_the_caller_hangs_up(daemon):
    """A lane that is half stopped because curl was interrupted would be nobody's wish."""
    from pipeline.web.commands import Command, Verb, execute

    gate, lane = asyncio.Event(), daemon.lanes["shopee"]

    async def slow_stop(by: str) -> None:
        await gate.wait()
        lane.state = "stopped"

    lane.stop = slow_stop
    order = asyncio.create_task(execute(daemon, Command(Verb.STOP, "api ::1", "shopee")))
    await asyncio.sleep(0)
    order.cancel()
    gate.set()
    await asyncio.gather(order, return_exceptions=True)
    await asyncio.sleep(0)
    assert lane.state == "stopped"


async def test_metrics_count_lanes_holds_and_the_process(http, daemon):
    daemon.lanes["shopee"].counters |= {"delivered": 41, "query_stale": 7}
    await http.post("/api/pause?lane=shopee")
    async with http.get("/metrics") as response:
        text = await response.text()
    assert response.content_type == "text/plain"
    for line in (
        "# TYPE tidegate_delivered_total counter",
        'tidegate_delivered_total{lane="shopee"} 41.0',
        'tidegate_dropped_total{lane="shopee",reason="query_stale"} 7.0',
        'tidegate_hold{lane="shopee",reason="manual",stage="pull"} 1.0',
        'tidegate_hold{lane="lazada",reason="manual",stage="pull"} 0.0',
        'tidegate_hold{lane="shopee",reason="breaker",stage="callback"} 0.0',
        'tidegate_lane_state{lane="shopee",state="paused"} 1.0',
        'tidegate_stage_mode{lane="shopee",mode="normal",stage="query"} 1.0',
        'tidegate_stage_latency_seconds{lane="shopee",quantile="0.95",stage="query"} 0.5',
        'tidegate_conservation_balanced{lane="shopee"} 1.0',
        "tidegate_web_clients 0.0",
    ):
        assert line in text
    assert "process_open_fds" in text
    assert 'quantile="0.99"' not in text  # not measured is not nought


async def test_every_reason_has_its_series_before_it_first_holds(http):
    async with http.get("/metrics") as response:
        text = await response.text()
    assert [reason for reason in Reason if f'lane="shopee",reason="{reason}",stage="pull"' not in text] == [
        Reason.CALLBACK_BACKLOG  # which holds the query stage
    ]


async def test_metrics_are_also_spoken_as_openmetrics(http):
    async with http.get("/metrics", headers={"Accept": "application/openmetrics-text"}) as response:
        assert response.content_type == "application/openmetrics-text"
        assert (await response.text()).endswith("# EOF\n")


async def test_a_taken_port_is_an_error_of_start_and_leaves_nothing_running(daemon):
    first = WebServer(daemon, WebConfig(port=0))
    await first.start()
    second = WebServer(FakeDaemon(), WebConfig(port=first.port))
    with pytest.raises(OSError, match="in use"):
        await second.start()
    await first.close()
