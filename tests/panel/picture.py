"""The README's two pictures, after some minutes of trouble: python -m tests.panel.picture"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import async_playwright

from tests.e2e.harness import LANE, eventually, running, settings_tree
from tests.panel.conftest import CHROMIUM
from tests.panel.panel_harness import Panel, opened, world_of

PICTURES = Path(__file__).parent / "pictures"
#: The charts are full of the tour's troubles by then, and the last of them has been over for a minute.
MINUTES = 4.5


async def main() -> None:
    lane = {**dict.fromkeys(("source", "provider", "sink"), "sim"), "sim": {"rate": 40, "scenario": "tour"}}
    with tempfile.TemporaryDirectory() as folder:
        tree = settings_tree({LANE: lane}, daemon={"data_dir": folder})
        async with running(tree) as live, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            async with opened(browser, live, "readme") as panel:
                await asyncio.sleep(MINUTES * 60)
                await panel.page.get_by_text("All is well.", exact=True).wait_for()
                await taken(panel, "light")
                await panel.page.emulate_media(color_scheme="dark")
                world_of(live).change({"query": {"reset": 1.0}})
                await eventually(lambda: "breaker" in live.holds("query"))
                await panel.hold("breaker").wait_for()
                await taken(panel, "dark")
            await browser.close()


async def taken(panel: Panel, name: str) -> None:
    PICTURES.mkdir(exist_ok=True)
    await panel.frames_more(2)
    await panel.page.screenshot(path=PICTURES / f"{name}.png")


if __name__ == "__main__":
    asyncio.run(main())
