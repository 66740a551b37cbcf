"""The panel in a real browser, before the real daemon and a simulated world in this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, ConsoleMessage, Locator, Page, WebSocket, expect

from pipeline.sim.ports import SimSource
from pipeline.sim.world import World
from tests.e2e.harness import CALM, LANE, PATIENCE, Live, merged, running, settings_tree

ARTEFACTS = Path(__file__).parent.parent / "artefacts" / "panel"
#: Kept by the page itself: what the browser refused because of the security policy.
WATCH_POLICY = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(
  `${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""
#: What a browser says of a daemon that is gone, of a refused token and of a trace that is not kept.
EXPECTED_NOISE = re.compile(r"WebSocket connection|net::ERR_|status of (401|404)")

expect.set_options(timeout=8000)


def sim_lane(**changes: Any) -> dict[str, Any]:
    """A small lane that reacts quickly."""
    base = {
        **dict.fromkeys(("source", "provider", "sink"), "sim"),
        "sim": {"rate": 40},
        "pull": {"workers": 4, "batch": 2, "interval": 0.1},
        "query": {"workers": 10, "batch": 10, "probe_interval": 0.3},
        "callback": {"workers": 10, "batch": 10, "degraded_batch": 5, "retry_interval": 0.2},
        "breaker": {"trip_after": 20, "pause": 0.6, "pause_max": 1.2},
        "retry": {"delay": 0.2},
    }
    return merged(base, changes)


def world_of(live: Live, name: str = LANE) -> World:
    source = live.daemon.lanes[name]._source
    assert isinstance(source, SimSource)
    return source.world


@asynccontextmanager
async def daemon(lanes: Mapping[str, Any] | None = None, **settings: Any) -> AsyncIterator[Live]:
    tree = settings_tree(lanes or {LANE: sim_lane()}, **settings)
    async with running(tree) as live:
        for name, lane in live.daemon.lanes.items():
            if isinstance(lane._source, SimSource):
                calm = {key: value for key, value in CALM.items() if key != "rate"}
                world_of(live, name).change(calm)
        yield live


class Panel:
    """One open page, as an operator uses it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.frames = 0
        self._frame = asyncio.Event()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._heard)
        page.on("websocket", self._connected)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not EXPECTED_NOISE.search(message.text):
            self.errors.append(message.text)

    def _connected(self, socket: WebSocket) -> None:
        socket.on("framereceived", lambda _: self._count())

    def _count(self) -> None:
        self.frames += 1
        self._frame.set()

    async def frames_more(self, number: int) -> None:
        """Until so many more messages have come."""
        wanted = self.frames + number
        async with asyncio.timeout(PATIENCE):
            while self.frames < wanted:
                self._frame.clear()
                await self._frame.wait()

    def find(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def hold(self, reason: str) -> Locator:
        return self.page.locator(f"[data-hold={reason}]")

    async def shows_state(self, state: str) -> None:
        await expect(self.find(".pill")).to_have_attribute("data-state", state)

    async def is_live(self) -> None:
        await expect(self.find(".light")).to_have_attribute("data-connection", "live")
        await expect(self.find(".pill")).to_be_visible()

    async def speed(self, stage: str) -> float:
        text = await self.find(f"[data-stage={stage}] .speed").inner_text()
        return float(re.sub(r"[^0-9.]", "", text))

    async def picture(self, name: str, full_page: bool = False) -> None:
        ARTEFACTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=full_page)


def url_of(live: Live) -> str:
    return f"http://127.0.0.1:{live.daemon.web.port}/"


@asynccontextmanager
async def opened(
    browser: Browser,
    live: Live,
    picture: str,
    *,
    asks_token: bool = False,
    scripts: tuple[str, ...] = (),
    **context: Any,
) -> AsyncIterator[Panel]:
    """The page, with its last moment kept as a picture. It must end without an error or a violation."""
    options = {"locale": "en-US", "viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
    made = await browser.new_context(**(options | context))
    page = await made.new_page()
    panel = Panel(page)
    try:
        for script in (WATCH_POLICY, *scripts):
            await page.add_init_script(script)
        await page.goto(url_of(live))
        if not asks_token:
            await panel.is_live()
        yield panel
        assert await page.evaluate("violations") == []
        assert panel.errors == []
    finally:
        await panel.picture(picture)
        await made.close()
