"""Four charts that show the same moment, from the last second to yesterday."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import WSCloseCode
from playwright.async_api import Browser, expect

from pipeline.web.app import FEED
from tests.e2e.harness import LANE, PATIENCE, Live, eventually
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
#: A page was there from 100 to 140 and again at 300; the journal remembers every minute.
FILLED = """
async () => {
  const { Ring } = await import("/static/core/ring.js");
  const ring = new Ring(20, 180, 130);
  for (const t of [100, 120, 140, 300]) ring.add({ t, pulled: 2 });
  ring.fill([0, 60, 120, 180, 240].map((t) => ({ t, pulled: 1 })));
  return ring.data.t.map((t, at) => [t, ring.data.pulled[at]]);
}
"""


#: How many dots of a screen a line of a single point covers.
POINT = """
async () => {
  const { draw } = await import("/static/view/plot.js");
  const canvas = document.body.appendChild(document.createElement("canvas"));
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  const data = { t: [50, 51, 52], drop: [null, 5, null] };
  const dots = (lines) => {
    draw(canvas, { data, lines, from: 0, to: 100, floor: 10, levels: [], marks: [], cursor: null });
    const { data: all } = pen.getImageData(0, 0, canvas.width, canvas.height);
    return all.filter((value, at) => at % 4 === 3 && value > 100).length;
  };
  return dots([{ column: "drop", ink: "bad" }]) - dots([]);
}
"""


async def worked(live: Live, panel: Panel) -> None:
    await eventually(lambda: live.counter("delivered") > 40)
    await panel.frames_more(10)


async def shows(panel: Panel, ink: str, canvases: list[bool]) -> None:
    """Within a few ticks: a line that lies on another's path, both at nothing, is not seen yet."""
    async with asyncio.timeout(PATIENCE):
        while await panel.page.evaluate(COLOURED, ink) != canvases:
            await panel.frames_more(1)


async def test_every_chart_has_its_lines_and_they_follow_the_theme(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "charts") as panel:
        await worked(live, panel)
        await shows(panel, "ok", [True, False, True, False])
        await shows(panel, "warn", [False, True, True, True])
        await panel.page.emulate_media(color_scheme="dark")
        await shows(panel, "ok", [True, False, True, False])


async def test_a_single_point_can_be_seen(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "point") as panel:
        assert await panel.page.evaluate(POINT) >= 9


async def test_a_page_just_opened_knows_how_many_queries_there_are_now(browser: Browser) -> None:
    async with daemon() as live:
        await eventually(lambda: live.counter("queried") > 100)
        async with opened(browser, live, "just-opened") as panel:
            assert await panel.speed("query") > await panel.speed("pull") / 2 > 5


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


async def test_after_a_lost_connection_the_journal_is_asked_again(browser: Browser, tmp_path: Path) -> None:
    kept = {"data_dir": str(tmp_path)}
    async with daemon(daemon=kept) as live, opened(browser, live, "history-again") as panel:
        async with panel.page.expect_response("**/api/history?**"):
            await panel.button("1 h").click()
        async with panel.page.expect_response("**/api/history?**"):
            for client in live.daemon.web._runner.app[FEED]._clients:
                client.drop(WSCloseCode.GOING_AWAY)
        await panel.is_live()


async def test_what_the_journal_knows_fills_the_gaps_and_nothing_else(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "ring") as panel:
        assert await panel.page.evaluate(FILLED) == [
            [0, 1], [60, 1], [100, 2], [120, 2], [140, 2], [180, 1], [240, 1], [300, 2]
        ]  # fmt: skip


async def test_without_a_journal_a_longer_range_says_that_it_has_only_seen_so_much(browser: Browser) -> None:
    async with daemon(journal={"level": "off"}) as live, opened(browser, live, "no-history") as panel:
        await panel.button("24 h").click()
        await expect(panel.find(".charts .card-head")).to_contain_text("Only what this page has seen")
        assert live.daemon.lanes[LANE].status()["state"] == "running"
