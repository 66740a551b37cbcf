"""Every hold is seen when it stands and gone when it ends."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.harness import LANE, Live, eventually, merged
from tests.panel.panel_harness import daemon, opened, sim_lane, world_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: What the world does, and what it does again when it is over.
TROUBLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "credit": ({"credits": 0}, {"credits": 1_000_000}),
    "auth": ({"auth_refused": True}, {"auth_refused": False}),
    "backpressure": ({"rate": 200, "query": {"latency": 2.0}}, {"rate": 10, "query": {"latency": 0.01}}),
    "callback_backlog": ({"callback": {"latency": 1.5}}, {"callback": {"latency": 0.01}}),
}
#: Two stages' breakers opened at different times; a hold of one moment stands on all three.
HOLDS = """
async () => {
  const { holdsOf } = await import("/static/core/holds.js");
  const credit = { reason: "credit", since: 50, by: "query", detail: "empty", releases: "probe" };
  const breaker = (since, detail) =>
    ({ reason: "breaker", since, by: "breaker", detail, releases: "by itself" });
  const lane = { holds: { pull: [credit, breaker(90, "3 of 5 trials bad")], query: [credit],
    callback: [breaker(70, "20 faults in a row"), credit] } };
  return holdsOf(lane).map(({ reason, since, detail, stages }) => [reason, since, detail, stages.join(" ")]);
}
"""
CHINESE = re.compile("[\u4e00-\u9fff]")
SMALL = {
    "queue": {"high_water": 60, "low_water": 20},
    "query": {"workers": 2, "batch": 5},
    "callback": {"backlog_count": 30, "workers": 2, "batch": 5},
}


async def test_holds_of_one_moment_are_one_and_two_breakers_keep_their_own_why(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "hold-merged") as panel:
        assert await panel.page.evaluate(HOLDS) == [
            ["credit", 50, "empty", "pull query callback"],
            ["breaker", 70, "20 faults in a row", "callback"],
            ["breaker", 90, "3 of 5 trials bad", "pull"],
        ]


@pytest.mark.parametrize("reason", TROUBLES)
async def test_a_hold_shows_with_its_runbook_and_clears(browser: Browser, reason: str) -> None:
    begin, end = TROUBLES[reason]
    async with (
        daemon({LANE: sim_lane(**SMALL)}) as live,
        opened(browser, live, f"hold-{reason}", color_scheme="dark") as panel,
    ):
        world_of(live).change(begin)
        hold = panel.hold(reason)
        await expect(hold).to_be_visible()
        await expect(hold).to_contain_text("since")
        await expect(hold).to_contain_text("ends:")
        await hold.get_by_role("link", name="runbook").click()
        await expect(panel.find(f"#hold-{reason}")).to_be_in_viewport()
        await panel.picture(f"hold-{reason}-on")
        await panel.button("中文").click()
        await expect(hold.locator(".detail")).to_have_text(CHINESE)
        world_of(live).change(end)
        await expect(hold).to_have_count(0)


async def test_the_success_limit_shows_and_resume_clears_it(browser: Browser) -> None:
    async with (
        daemon({LANE: sim_lane(callback={"success_limit": 20})}) as live,
        opened(browser, live, "hold-success-limit") as panel,
    ):
        await expect(panel.hold("success_limit")).to_be_visible()
        lane = live.daemon.lanes[LANE]
        unlimited = lane.config.callback.model_copy(update={"success_limit": 0})
        lane.reconfigure(lane.config.model_copy(update={"callback": unlimited}))
        await panel.button("Resume").click()
        await expect(panel.hold("success_limit")).to_have_count(0)
        await panel.shows_state("running")


async def test_a_journal_that_cannot_be_written_shows_until_it_can(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "hold-journal") as panel:
        live.daemon.lanes[LANE].journal_trouble("disk full")
        await expect(panel.hold("journal")).to_contain_text("disk full")
        await expect(panel.find(".verdict")).to_contain_text("Check the disk")
        await expect(panel.find(".pill")).to_have_class("pill bad")
        await panel.hold("journal").get_by_role("link", name="runbook").click()
        await expect(panel.find("#hold-journal")).to_be_in_viewport()
        live.daemon.lanes[LANE].journal_trouble(None)
        await expect(panel.hold("journal")).to_have_count(0)


def doomed_lane() -> dict[str, Any]:
    """Minutes scaled down to seconds: most tickets grow too old at once."""
    short = {
        "pull": {"max_age": 0.6},
        "queue": {"max_age": 1.2, "clean_every": 0.3},
        "query": {"stale_age": 0.8, "max_age": 1.4},
        "callback": {"max_age": 1.4},
        "drop_rate": {"min_total": 20},
    }
    return merged(sim_lane(), short)


async def hard_stop(live: Live) -> None:
    world_of(live).change({"rate": 200, "processing_share": 0.7, "processing_time": 3600})
    await eventually(lambda: live.status()["state"] == "hard_stopped", why=live.status)
    world_of(live).change({"rate": 20, "processing_share": 0})


async def test_resuming_a_hard_stop_lists_what_it_clears_and_asks_for_a_reason(browser: Browser) -> None:
    async with (
        daemon({LANE: doomed_lane()}) as live,
        opened(browser, live, "hard-stop", color_scheme="dark") as panel,
    ):
        await hard_stop(live)
        await panel.shows_state("hard_stopped")
        await expect(panel.hold("drop_rate")).to_contain_text("operator only")
        await expect(panel.find(".drop .rows li").first).to_be_visible()
        await panel.picture("hard-stop-on")
        await panel.button("Resume").click()
        dialog = panel.find("dialog")
        await expect(dialog).to_contain_text("This clears")
        await expect(dialog.locator("li").first).to_contain_text("drop rate")
        await expect(dialog.get_by_role("heading")).to_have_text("Resume after a hard stop")
        go = dialog.get_by_role("button", name="Resume", exact=True)
        await go.click()  # refused by the form: no reason yet
        assert "drop_rate" in live.holds("pull")
        await panel.picture("hard-stop-dialog")
        await panel.page.get_by_label("Reason (required)").fill("   ")
        await go.click()  # blanks are no reason either
        assert "drop_rate" in live.holds("pull")
        await expect(dialog).to_be_visible()
        await panel.page.get_by_label("Reason (required)").fill("receiver mended")
        await go.click()
        await expect(panel.hold("drop_rate")).to_have_count(0)
        details = [event["detail"] for event in await live.events("release")]
        assert "receiver mended" in [each["why"] for each in details if each["reason"] == "drop_rate"]


async def test_a_black_out_is_seen_in_breakers_and_charts(browser: Browser) -> None:
    slow = sim_lane(breaker={"pause": 2, "pause_max": 2})
    async with daemon({LANE: slow}) as live, opened(browser, live, "black-out", color_scheme="dark") as panel:
        await eventually(lambda: live.counter("delivered") > 50)
        query, plots = panel.find("[data-breaker=query]"), panel.find(".plots")
        await expect(query).to_have_attribute("data-mode", "normal")
        await expect(plots).to_have_attribute("data-marks", "0")
        world_of(live).change({"query": {"reset": 1.0}})
        await expect(query).to_have_attribute("data-mode", "open")
        await expect(query).to_contain_text("tries in")
        await expect(panel.hold("breaker")).to_contain_text("query")
        await expect(panel.hold("breaker")).to_contain_text("connection reset")
        await expect(panel.find(".pill")).to_have_class("pill bad")
        await expect(query).to_contain_text("Last: connection reset")
        await expect(panel.find(".verdict")).to_contain_text("The breaker is open at query")
        await expect(plots).not_to_have_attribute("data-marks", "0")
        delivered = panel.find(".plot").first.locator(".key b").nth(2)
        before = await delivered.inner_text()
        await expect(delivered).not_to_have_text(before)
        await panel.page.locator("canvas").last.hover(position={"x": 300, "y": 60})
        await expect(panel.find(".charts .card-head")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
        await panel.picture("black-out-on")
        world_of(live).change({"query": {"reset": 0.0}})
        await expect(panel.hold("breaker")).to_have_count(0)
        await expect(panel.find(".event[data-kind=breaker]").first).to_be_visible()


async def test_many_faults_are_named_before_and_after_they_make_a_lane_slow(browser: Browser) -> None:
    patient = sim_lane(breaker={"window": 4, "min_samples": 20, "degrade_at": 0.9, "trip_after": 10_000})
    async with daemon({LANE: patient}) as live, opened(browser, live, "slow") as panel:
        verdict = panel.find(".verdict")
        await expect(verdict).to_have_text("All is well.")
        world_of(live).change({"query": {"error": 0.25}})
        await expect(verdict).to_have_text("Running, with many faults at query.")
        await panel.shows_state("running")
        world_of(live).change({"query": {"error": 1.0}})
        await panel.shows_state("degraded")
        await expect(verdict).to_have_text(
            "Slower than usual because of many faults at query. It recovers by itself."
        )
        await expect(panel.find("[data-breaker=query] .last")).to_be_visible()
        world_of(live).change({"rate": 0, "query": {"error": 0.0}})  # so that it has nothing to drain
