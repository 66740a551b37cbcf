"""The page itself: languages, themes, sizes, strangers' words, and what it weighs."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from pipeline.control.gate import Reason
from pipeline.events import Kind
from pipeline.texts import LANGUAGES
from pipeline.ticket import Outcome
from pipeline.web.app import STATIC
from pipeline.web.wording import panel_texts
from tests.e2e.harness import LANE, eventually
from tests.panel.hostile_ends import PAYLOADS, TURNED_SHOWN
from tests.panel.panel_harness import Panel, daemon, opened, sim_lane, url_of, world_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).parent.parent.parent
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
BUDGET = 150_000
PHONE = {"width": 360, "height": 780}
#: All that the browser fetched, in bytes, as if nothing had been compressed.
FETCHED = """
performance.getEntries().filter((entry) => "decodedBodySize" in entry)
  .filter((entry) => !entry.name.includes("/api/")).map((entry) => entry.decodedBodySize)
"""


async def background(panel: Panel) -> str:
    colour: str = await panel.page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


async def test_the_language_is_the_systems_until_chosen_and_then_kept(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "chinese", locale="zh-CN") as panel:
        await expect(panel.find(".pill")).to_have_text("运行中")
        await expect(panel.find("html")).to_have_attribute("lang", "zh-CN")
        await panel.picture("chinese", full_page=True)
        await panel.button("EN").click()
        await expect(panel.find(".pill")).to_have_text("running")
        await panel.page.reload()
        await expect(panel.find(".pill")).to_have_text("running")
        await expect(panel.find("html")).to_have_attribute("lang", "en")
        await panel.button("中文").click()
        await panel.button("暂停").click()
        await expect(panel.hold("manual")).to_contain_text("人工暂停")


async def test_the_theme_is_the_systems_until_chosen_and_then_kept(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "theme") as panel:
        light = await background(panel)
        await panel.page.emulate_media(color_scheme="dark")
        dark = await background(panel)
        assert light != dark
        await panel.find(".theme").click()
        assert await background(panel) == light
        await panel.find(".theme").click()
        await panel.page.emulate_media(color_scheme="light")
        assert await background(panel) == dark
        await panel.page.reload()
        await panel.is_live()
        assert await background(panel) == dark


@pytest.mark.parametrize("locale", ["zh-CN", "en-US"])
async def test_a_phone_shows_everything_without_scrolling_sideways(browser: Browser, locale: str) -> None:
    lanes = {"first-lane-with-a-long-name": sim_lane(), "second": sim_lane()}
    async with (
        daemon(lanes) as live,
        opened(
            browser, live, f"phone-{locale}", viewport=PHONE, locale=locale, has_touch=True, is_mobile=True
        ) as panel,
    ):
        await live.post("/api/pause", reason="a reason without a space " + "x" * 120)
        await expect(panel.hold("manual")).to_be_visible()
        await panel.frames_more(1)
        width, shown = await panel.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= shown == PHONE["width"]
        await panel.picture(f"phone-{locale}-all", full_page=True)
        button = await panel.find(".big.resume").bounding_box()
        assert button is not None
        assert button["height"] >= 38
        await panel.find(".big.resume").tap()
        await panel.find("dialog .big.resume").tap()  # which shows the reason that somebody wrote
        await expect(panel.hold("manual")).to_have_count(0)


async def test_what_was_not_today_has_its_day(browser: Browser) -> None:
    told = """async () => {
      const { moment } = await import("/static/core/format.js");
      const at = new Date(2026, 0, 31, 23, 59, 58) / 1000;
      return [moment(at, at + 1), moment(at, at + 3)];
    }"""
    async with daemon() as live, opened(browser, live, "day") as panel:
        assert await panel.page.evaluate(told) == ["23:59:58", "01-31 23:59:58"]


async def test_the_clock_says_whose_time_zone_it_is_in(browser: Browser) -> None:
    async with daemon() as live:
        for place, told in (("Asia/Kolkata", "UTC+5:30"), ("America/Caracas", "UTC−4")):
            async with opened(browser, live, "zone", timezone_id=place) as panel:
                await expect(panel.find(".light time")).to_contain_text(told)


@pytest.mark.parametrize("size", [PHONE, {"width": 1280, "height": 720}])
async def test_huge_numbers_stay_in_their_boxes(browser: Browser, size: dict[str, int]) -> None:
    async with daemon() as live, opened(browser, live, f"huge-{size['width']}", viewport=size) as panel:
        world_of(live).change({"credits": 10**15})
        await live.daemon.lanes[LANE].side_calls_once()
        await expect(panel.find(".money .speed").first).to_have_text(re.compile(r"^\d{1,3}(,\d{3}){4,}$"))
        assert await panel.find(".money").evaluate("(card) => card.scrollWidth <= card.offsetWidth")
        assert await panel.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_strangers_words_are_shown_and_never_run(browser: Browser) -> None:
    lane = sim_lane(source="tests.panel.hostile_ends:HostileSource")
    async with daemon({LANE: lane}) as live, opened(browser, live, "hostile") as panel:
        for shown in (*PAYLOADS, TURNED_SHOWN):
            await expect(panel.find("[data-column=pull]")).to_contain_text(shown)
        await live.post("/api/pause", reason=PAYLOADS[0])
        await expect(panel.hold("manual")).to_contain_text(PAYLOADS[0])
        await expect(panel.find(".events")).to_contain_text(PAYLOADS[0])
        await panel.find("[data-column=pull] button").first.click()
        await expect(panel.find(".trace")).to_be_visible()
        assert await panel.page.evaluate("window.hit") is None
        assert await panel.find("main script, main img, main svg").count() == 0


async def test_axe_finds_nothing_serious_in_light_and_dark(browser: Browser) -> None:
    if not AXE.exists():
        pytest.skip(f"NO AXE: {AXE.name} is not there; type: scripts/vendor")
    lanes = {"first": sim_lane(), "second": sim_lane()}
    async with (
        daemon(lanes) as live,
        opened(browser, live, "axe", scripts=(AXE.read_text(),)) as panel,
    ):
        await eventually(lambda: live.counter("delivered", "first") > 20)
        await live.post("/api/pause", reason="for axe")
        await expect(panel.hold("manual")).to_be_visible()
        await expect(panel.find("[data-column=callback] .ticket").first).to_be_visible()
        assert await serious(panel) == []
        await panel.page.emulate_media(color_scheme="dark")
        assert await serious(panel) == []
        await panel.button("More actions").click()
        await panel.button("Pause with reason or time…").click()
        await expect(panel.find("dialog")).to_be_visible()
        assert await serious(panel) == []


async def serious(panel: Panel) -> list[tuple[str, list[str]]]:
    # axe keeps the page busy, on a busy machine for longer than data may be old: time stands still meanwhile.
    await panel.page.evaluate("(() => { const now = Date.now(); Date.now = () => now; })()")
    await expect(panel.find("main")).not_to_have_class(re.compile("stale"))
    found = await panel.page.evaluate("axe.run()")
    return [
        (rule["id"], [node["html"][:120] for node in rule["nodes"]])
        for rule in found["violations"]
        if rule["impact"] in ("serious", "critical")
    ]


async def test_the_page_with_all_its_texts_is_light(browser: Browser) -> None:
    files = [path.stat().st_size for path in STATIC.rglob("*") if path.is_file()]
    assert sum(files) + sum(len(panel_texts(lang)) for lang in LANGUAGES) < BUDGET
    async with daemon() as live, opened(browser, live, "weight", locale="zh-CN") as panel:
        sizes = await panel.page.evaluate(FETCHED)
        assert len(sizes) > 20
        assert sum(sizes) < BUDGET


async def test_nothing_is_fetched_from_anywhere_else(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "local") as panel:
        await panel.page.reload()
        await panel.is_live()
        names = await panel.page.evaluate(
            "performance.getEntriesByType('resource').map((entry) => entry.name)"
        )
        addresses = [name for name in names if "://" in name]
        assert len(addresses) > 20
        assert [name for name in addresses if not name.startswith(url_of(live))] == []


async def test_every_text_that_the_page_names_exists() -> None:
    groups = json.loads(panel_texts("zh"))
    texts = {f"{group}.{word}" for group, words in groups.items() for word in words}
    sources = "".join(
        path.read_text(encoding="utf-8") for path in STATIC.glob("*/*.js") if "vendor" not in path.parts
    )
    named = set(re.findall(r"""(?<![#\w])say\("([a-z0-9_.]+)\"""", sources))
    assert len(named) > 80
    assert named - texts == set()
    families = set(re.findall(r"""(?:say|nameOf)\(`([a-z_.]+)\.\$""", sources))
    assert [family for family in families if not any(key.startswith(f"{family}.") for key in texts)] == []
    for reason in Reason:
        wanted = {f"panel.releases.{reason}", f"panel.verdict.{reason}", f"runbook.{reason}.means"}
        assert wanted <= texts
    assert {f"event.{kind}" for kind in Kind} <= texts
    assert {f"outcome.{outcome}" for outcome in Outcome} <= texts


async def test_vendored_files_are_what_was_recorded() -> None:
    check = await asyncio.create_subprocess_exec(ROOT / "scripts" / "vendor", "--check")
    assert await check.wait() == 0
    manifest = json.loads((ROOT / "scripts" / "vendor.json").read_text())
    recorded = {path for package in manifest.values() for path in package["files"]}
    present = {str(path.relative_to(ROOT)) for path in (STATIC / "vendor").iterdir()}
    assert present <= recorded
