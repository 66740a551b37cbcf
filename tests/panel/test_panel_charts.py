"""Four charts that show the same moment, from the last second to yesterday."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.harness import LANE, Live, eventually
from tests.panel.panel_harness import Panel, daemon, opened, world_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

CLOCK = re.compile(r"\d\d:\d\d:\d\d")
#: Whether anything of a line's colour is on each canvas.
COLOURED = """
(ink) => {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${ink})`;
  const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
  probe.remove();
  return [...document.querySelectorAll("canvas")].map((canvas) => {
    const { width, height } = canvas;
    const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, width, height);
    const near = (at) => wanted.every((part, band) => Math.abs(data[at + band] - part) < 8);
    const same = (at) => data[at + 3] > 200 && near(at);
    for (let at = 0; at < data.length; at += 4) if (same(at)) return true;
    return false;
  });
}
"""


async def worked(live: Live, panel: Panel) -> None:
    await eventually(lambda: live.counter("delivered") > 40)
    await panel.frames_more(10)


async def test_every_chart_has_its_lines_and_they_follow_the_theme(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "charts") as panel:
        await worked(live, panel)
        assert await panel.page.evaluate(COLOURED, "ok") == [True, False, True, False]
        assert await panel.page.evaluate(COLOURED, "warn") == [False, True, True, True]
        await panel.page.emulate_media(color_scheme="dark")
        await panel.frames_more(2)
        assert await panel.page.evaluate(COLOURED, "ok") == [True, False, True, False]


async def test_one_cursor_tells_of_one_moment_in_all_charts(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "cursor") as panel:
        await worked(live, panel)
        await live.post("/api/pause", reason="for the mark")
        await expect(panel.hold("manual")).to_be_visible()
        head, depth = panel.find(".charts .card-head"), panel.find(".plot .key b").nth(4)
        await expect(head).to_contain_text("Bands are holds")
        first = panel.find("canvas").first
        box = await first.bounding_box()
        assert box is not None
        await first.hover(position={"x": box["width"] - 9, "y": 60})
        await expect(head).to_contain_text(CLOCK)
        await expect(head).to_contain_text("manual pause")
        await expect(depth).to_have_text(re.compile(r"\d"))
        await first.hover(position={"x": 60, "y": 60})  # before there was anything
        await expect(head).not_to_contain_text("manual pause")
        await expect(depth).to_have_text("–")
        await panel.page.mouse.move(0, 0)
        await expect(head).to_contain_text("Bands are holds")


async def test_longer_ranges_know_what_was_before_the_page_and_before_a_restart(
    browser: Browser, tmp_path: Path
) -> None:
    kept = {"data_dir": str(tmp_path)}
    async with daemon(daemon=kept) as first:
        await eventually(lambda: first.counter("delivered") > 40)
    async with daemon(daemon=kept) as live, opened(browser, live, "history") as panel:
        world_of(live).change({"rate": 0})
        for name, seconds in (("1 h", 3600), ("24 h", 86_400)):
            async with panel.page.expect_response("**/api/history?**") as asked:
                await panel.button(name).click()
            minutes = (await (await asked.value).json())["minutes"]
            assert sum(minute["counters"].get("delivered", 0) for minute in minutes) >= 40, seconds
            await expect(panel.find(".charts .card-head")).to_contain_text("Bands are holds")
            await expect(panel.find(".plot .key b").nth(2)).not_to_have_text(re.compile("^(–|0.0)$"))


async def test_without_a_journal_a_longer_range_says_that_it_has_only_seen_so_much(browser: Browser) -> None:
    async with daemon(journal={"level": "off"}) as live, opened(browser, live, "no-history") as panel:
        await panel.button("24 h").click()
        await expect(panel.find(".charts .card-head")).to_contain_text("Only what this page has seen")
        assert live.daemon.lanes[LANE].status()["state"] == "running"
