"""The one sentence at the top: it must not say that all is well while tickets are lost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.harness import LANE
from tests.panel.panel_harness import Panel, daemon, opened, sim_lane, world_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

#: What was counted in a quiet minute.
QUIET = dict.fromkeys(
    ("pulled", "queried", "delivered", "dropped", "rejected", "pull_expired", "malformed"), 0
)
JUDGED = """
async ({ lane, minute }) => {
  const { toneOfLane, verdict } = await import("/static/core/verdict.js");
  return [verdict(lane, [], false, minute), toneOfLane(lane, minute)];
}
"""
#: One ticket a second, each lost; then the daemon is started anew.
MINUTES = """
async () => {
  const { Series } = await import("/static/core/series.js");
  const none = { queried: 0, delivered: 0, dropped: 0, rejected: 0, malformed: 0 };
  const sample = (t, pulled) => ({ t, pulled, pull_expired: pulled, ...none });
  const series = new Series();
  const told = () => [series.minute.seconds, series.minute.pull_expired];
  for (let t = 0; t <= 600; t += 0.5) series.add(sample(1000 + t, t));
  const long = told();
  series.add(sample(1601, 3));
  const anew = told();
  series.add(sample(1602, 4));
  return [long, anew, told(), series.minutes.samples.length];
}
"""


async def judged(panel: Panel, lane: dict[str, Any], **counted: float) -> list[str]:
    minute = QUIET | {"seconds": 60} | counted
    found: list[str] = await panel.page.evaluate(JUDGED, {"lane": lane, "minute": minute})
    return found


async def test_a_wrong_time_zone_is_named_and_the_lane_is_not_green(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "wrong-zone") as panel:
        await expect(panel.find(".verdict")).to_have_text("All is well.")
        world_of(live).change({"timestamp": "utc_wrong_zone"})
        said = "Running, with wrong ticket times (time zone off by +8 h: check pull.timezone)."
        await expect(panel.find(".verdict")).to_have_text(said)
        await expect(panel.find(".pill")).to_have_class("pill bad")
        await expect(panel.find(".books .bad")).to_contain_text("expired at pull")
        await expect(panel.find(".event[data-kind=clock_skew]")).to_contain_text(
            "ticket times are off by 8 h 0 min"
        )
        await panel.button("中文").click()
        await expect(panel.find(".verdict")).to_have_text(re.compile("任务时间不对（.*pull.timezone）"))
        world_of(live).change({"timestamp": "local"})
        await expect(panel.find(".verdict")).not_to_contain_text("任务时间不对")


async def test_a_receiver_that_takes_nothing_is_named_and_the_lane_is_red(browser: Browser) -> None:
    refusing = sim_lane(sink="tests.panel.hostile_ends:RefusingSink")
    lanes = {LANE: refusing, "calm": sim_lane(sim={"rate": 2})}
    async with daemon(lanes) as live, opened(browser, live, "rejected") as panel:
        await panel.find(".lane-switch").get_by_role("button", name=LANE).click()
        await expect(panel.find(".verdict")).to_have_text("Running, with many tickets rejected.")
        await expect(panel.find(".pill")).to_have_class("pill bad")
        await panel.shows_state("running")
        assert await panel.page.title() == "■ running · Tidegate"
        await panel.find(".lane-switch").get_by_role("button", name="calm").click()
        await expect(panel.find(".lane-switch .bad").last).to_have_text("running")
        await expect(panel.find(".top [role=status]")).to_contain_text("with many tickets rejected")
        await panel.page.reload()
        await expect(panel.find(".verdict")).to_have_text("Running, with many tickets rejected.")


async def test_shares_of_a_minute_are_told_from_a_tenth_on_and_of_enough_tickets(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "shares") as panel:
        world_of(live).change({"rate": 0})
        lane = live.status()
        well, tone = await judged(panel, lane, pulled=100, queried=100, delivered=91, rejected=9)
        assert (well, tone) == ("All is well.", "ok")
        assert await judged(panel, lane, pulled=19, pull_expired=19) == ["All is well.", "ok"]
        some = await judged(panel, lane, pulled=100, queried=100, delivered=90, rejected=10)
        assert some == ["Running, with many tickets rejected.", "warn"]
        two = await judged(panel, lane, pulled=100, pull_expired=50, malformed=30, dropped=30)
        assert two == ["Running, with many tickets expired at pull, many tickets malformed.", "bad"]
        none = await judged(panel, lane, pulled=50, queried=50)
        assert none == ["Running, with no deliveries for a minute.", "warn"]


async def test_a_minute_without_tickets_is_upstreams_unless_something_is_under_way(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "idle") as panel:
        lane = live.status()
        lane["queue"]["in_flight"] = 0
        assert await judged(panel, lane) == ["Upstream has no tickets.", "ok"]
        assert await judged(panel, lane, seconds=20) == ["All is well.", "ok"]
        lane["stages"]["pull"]["consecutive_faults"] = 1
        assert await judged(panel, lane) == ["All is well.", "ok"]
        lane["stages"]["pull"]["consecutive_faults"] = 0
        lane["queue"]["in_flight"] = 1
        assert await judged(panel, lane) == ["All is well.", "ok"]


async def test_troubles_that_hold_nothing_are_named(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "troubles") as panel:
        lane = live.status()
        for kind, said in (
            ("tls", "a refused certificate at callback"),
            ("too_large", "answers too large at callback"),
            ("descriptors", "no file descriptors at callback"),
        ):
            lane["troubles"] = [{"kind": kind, "stage": "callback", "detail": "why"}]
            assert await judged(panel, lane) == [f"Running, with {said}.", "warn"]


async def test_a_minute_is_a_minute_and_begins_anew_with_the_daemon(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "minute") as panel:
        assert await panel.page.evaluate(MINUTES) == [[60, 60], [0, 0], [1, 1], 2]
