"""The line to the daemon: lost and found again, silent, unwatched, and closed to strangers."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Browser, CDPSession, Route, expect

from pipeline.web.app import FEED
from tests.e2e.harness import LANE, PATIENCE, Live
from tests.panel.panel_harness import Panel, daemon, opened, world_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN = "panel-test-token"
#: Ticks that are waited for until they are on the screen.
DRAWN = 60
#: What one picture may make the browser do, however fast it is. The page has nearly 5,000 nodes.
WORK_MAX = {"LayoutCount": 3, "RecalcStyleCount": 6, "changes": 600}
#: Every picture is one batch of changes.
WATCH_CHANGES = """
window.pictures = window.changes = 0;
window.seconds = () => performance.now() / 1000;
const watcher = new MutationObserver((batch) => { pictures += 1; changes += batch.length; });
const all = { subtree: true, childList: true, attributes: true, characterData: true };
watcher.observe(document.getElementById("panel"), all);
"""
COUNTED = "[pictures, changes, seconds()]"
#: What a tab in the background looks like to its page.
HIDE = """
window.looked = true;
Object.defineProperty(document, "hidden", { get: () => !looked });
"""


async def test_it_reconnects_by_itself_after_the_daemon_was_restarted(browser: Browser) -> None:
    async with daemon() as first:
        port = first.daemon.web.port
        async with opened(browser, first, "reconnected") as panel:
            await first.post("/api/pause", reason="before the restart")
            await panel.shows_state("paused")
            first.daemon.shutdown("test")
            await asyncio.wait_for(asyncio.shield(first.done), PATIENCE)
            await expect(panel.find(".light")).not_to_have_attribute("data-connection", "live")
            await expect(panel.find(".stopped-at")).to_have_text(
                re.compile(r"^Data stopped at .* · \d+ s ago$")
            )
            await expect(panel.find("main")).to_have_class("stale")
            await expect(panel.find(".verdict")).to_contain_text("This is how it was")
            await expect(panel.find(".top [role=status]")).to_contain_text("Data stopped at")
            assert await panel.page.title() == "✕ no data · Tidegate"
            await expect(panel.button("Resume")).to_be_disabled()
            await panel.picture("stale")
            async with daemon(web={"port": port}) as second:
                await panel.is_live()
                await panel.shows_state("running")
                await expect(panel.find(".stopped-at")).to_have_count(0)
                await expect(panel.find(".events")).to_contain_text("before the restart")
                await panel.button("Pause").click()
                await panel.shows_state("paused")
                assert second.holds("pull") == {"manual"}


async def test_a_line_that_is_open_and_silent_is_not_called_live(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with daemon() as live, opened(browser, live, "silent") as panel:
        await expect(panel.find(".light")).to_contain_text("live")
        monkeypatch.setattr(live.daemon.web._runner.app[FEED], "run_once", lambda: None)
        await expect(panel.find(".light")).to_contain_text("no data")
        await expect(panel.find("main")).to_have_class("stale")
        monkeypatch.undo()
        await expect(panel.find(".light")).to_contain_text("live")
        await expect(panel.find("main")).not_to_have_class("stale")


async def test_texts_that_do_not_come_are_asked_for_again(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "texts") as panel:
        texts = "**/static/texts/*"
        await panel.page.route(texts, lambda route: route.abort())
        await panel.button("中文").click()
        await expect(panel.find(".notices")).to_contain_text("The daemon did not answer")
        await panel.page.reload()
        await expect(panel.find("#panel")).to_contain_text("Failed to fetch")
        await panel.page.unroute(texts)
        await panel.is_live()
        await expect(panel.find("#panel")).not_to_contain_text("Failed to fetch")


async def test_a_network_that_swallows_everything_counts_as_lost(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "swallowed") as panel:
        swallowed: asyncio.Queue[Route] = asyncio.Queue()
        await panel.page.route("**/api/status", swallowed.put_nowait)
        await panel.page.reload()
        await asyncio.wait_for(swallowed.get(), PATIENCE)
        await expect(panel.find(".light")).to_have_attribute("data-connection", "connecting")
        # The wait between two questions is shorter than the pauses in which a picture of it could be missed.
        await asyncio.wait_for(swallowed.get(), PATIENCE)
        await panel.page.unroute("**/api/status")
        await panel.is_live()


async def test_draining_is_shown_until_the_end(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "draining") as panel:
        world_of(live).change({"callback": {"latency": 1.0, "sigma": 0.0}})
        await panel.frames_more(2)
        await live.post("/api/shutdown")
        await panel.shows_state("draining")
        await expect(panel.hold("draining")).to_be_visible()
        await expect(panel.button("Pause")).to_be_disabled()


async def test_the_token_is_asked_once_and_kept_for_the_session(browser: Browser) -> None:
    async with (
        daemon(web={"token": TOKEN}) as live,
        opened(browser, live, "token", asks_token=True) as panel,
    ):
        field = panel.page.get_by_label("Access token")
        await field.fill("wrong")
        await panel.button("Open").click()
        await expect(panel.page.get_by_role("alert")).to_have_text("That token is not valid")
        await panel.picture("token-wrong")
        await field.fill(TOKEN)
        await panel.page.keyboard.press("Enter")
        await panel.is_live()
        await panel.button("Pause").click()
        await panel.shows_state("paused")
        assert live.holds("pull") == {"manual"}
        await panel.page.reload()
        await panel.is_live()
        assert TOKEN not in panel.page.url
        kept = await panel.page.evaluate("[localStorage.length, document.cookie]")
        assert kept == [0, ""]


async def test_a_token_is_trimmed_and_one_that_no_header_can_carry_is_not_sent(
    browser: Browser,
) -> None:
    async with (
        daemon(web={"token": TOKEN}) as live,
        opened(browser, live, "token-odd", asks_token=True) as panel,
    ):
        field, asked = panel.page.get_by_label("Access token"), []
        await expect(field).to_be_focused()
        panel.page.on("request", lambda request: asked.append(request.url))
        for odd in ("令牌", "tok\u2013en", "   "):
            await field.fill(odd)
            await panel.page.keyboard.press("Enter")
            await expect(panel.page.get_by_role("alert")).to_have_text("That token is not valid")
            await expect(field).to_be_focused()
        assert asked == []
        assert await panel.page.evaluate("sessionStorage.length") == 0
        await field.fill("wrong")
        async with panel.page.expect_response("**/api/status"):
            await panel.page.keyboard.press("Enter")
        await expect(field).to_have_value("")
        await expect(field).to_be_focused()
        await field.fill(f"  {TOKEN} ")
        await panel.page.keyboard.press("Enter")
        await panel.is_live()


#: What was under way when the tab was hidden is on the page.
SETTLED = (
    "() => new Promise((over) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(over))))"
)


async def test_nothing_is_drawn_while_the_tab_is_hidden(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "hidden", scripts=(HIDE,)) as panel:
        await look(panel, False)
        await panel.frames_more(1)
        await panel.page.evaluate(SETTLED)
        pulled = await panel.find(".books dd").first.inner_text()
        await live.post("/api/pause")
        await panel.frames_more(4)
        assert await panel.find(".books dd").first.inner_text() == pulled
        assert "paused" in await panel.page.title()
        await look(panel, True)
        await panel.shows_state("paused")


async def look(panel: Panel, looked: bool) -> None:
    await panel.page.evaluate(
        "(now) => { looked = now; document.dispatchEvent(new Event('visibilitychange')); }", looked
    )


async def test_a_thousand_ticks_leave_the_memory_flat(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "ticks") as panel:
        session = await panel.page.context.new_cdp_session(panel.page)
        await session.send("Performance.enable")
        await ticks(live, panel, 600)  # until every list is as long as it may be
        before = await measured(session)
        await ticks(live, panel, 1000)
        after = await measured(session)
        assert after["JSHeapUsedSize"] - before["JSHeapUsedSize"] < 2e6
        assert after["Nodes"] - before["Nodes"] < 1000


async def test_a_tick_is_one_picture_and_a_picture_is_little_work(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "smooth") as panel:
        session = await panel.page.context.new_cdp_session(panel.page)
        await session.send("Performance.enable")
        await ticks(live, panel, 300)
        await panel.page.evaluate(WATCH_CHANGES)
        before, frames, began = await measured(session), panel.frames, await panel.page.evaluate("seconds()")
        for _ in range(DRAWN):
            await ticks(live, panel, 1)
            await panel.page.evaluate("new Promise(requestAnimationFrame)")
        pictures, changes, ended = await panel.page.evaluate(COUNTED)
        after = await measured(session)
        work = {name: after[name] - before[name] for name in after} | {"changes": changes}
        each = {name: work[name] / pictures for name in WORK_MAX}
        # Many messages may share one; only the page's own clock draws without any.
        assert DRAWN / 2 < pictures <= panel.frames - frames + ended - began + 1
        assert {name: each[name] for name in WORK_MAX if each[name] > WORK_MAX[name]} == {}


async def ticks(live: Live, panel: Panel, number: int) -> None:
    """As fast as the page takes them; with events, which never wait for a tick."""
    feed, lane = live.daemon.web._runner.app[FEED], live.daemon.lanes[LANE]
    for tick in range(number):
        feed.run_once()
        await panel.frames_more(1)
        if tick % 5 == 0:
            lane.pause("test")
            lane.resume("test")


async def measured(session: CDPSession) -> dict[str, float]:
    await session.send("HeapProfiler.collectGarbage")
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return {metric["name"]: metric["value"] for metric in metrics}
