from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from pipeline.web import feed
from tests.e2e import conftest as e2e

#: The daemon runs in this process here too.
logging_as_before = e2e.logging_as_before

#: Seconds between two ticks of the feed: tests wait for ticks more than for anything else.
TICK = 0.2
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"


@pytest.fixture(autouse=True)
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PERIOD", TICK)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One for all tests of a process; each test has a context of its own."""
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"NO BROWSER: {CHROMIUM} is missing; type: sudo apt-get install chromium fonts-noto-cjk")
    # Chromium's sandbox does not start for root, and /dev/shm is small in containers.
    args = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        await browser.close()
