"""What an operator presses changes the daemon, and what the daemon does is on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from pipeline.events import Kind, Level
from tests.e2e.harness import LANE, PATIENCE, Live, eventually
from tests.panel.panel_harness import Panel, daemon, opened, sim_lane, world_of

#: Ends that come after the provider was paid.
LOST = ("callback_expired", "retry_expired", "retry_exhausted")

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_pause_and_resume_change_the_daemon(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "pause") as panel:
        await panel.shows_state("running")
        await panel.button("Pause").click()
        await panel.shows_state("paused")
        assert live.holds("pull") == {"manual"}
        await expect(panel.hold("manual")).to_contain_text("by panel 127.0.0.1")
        await expect(panel.find(".verdict")).to_contain_text("Press Resume")
        await expect(panel.find(".top [role=status]")).to_contain_text(f"{LANE}: paused")
        await panel.button("Resume").click()
        await panel.shows_state("running")
        assert live.holds("pull") == set()
        await expect(panel.find(".notices")).to_contain_text("Resume done")


async def test_a_pause_may_have_a_reason_and_a_time_and_all_of_it_by_keyboard(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "pause-dialog") as panel:
        keyboard = panel.page.keyboard
        await panel.button("More actions").focus()
        await keyboard.press("Enter")
        await expect(panel.button("Pause with reason or time…")).to_be_focused()
        await keyboard.press("Enter")
        await expect(panel.page.get_by_label("Reason")).to_be_focused()
        await keyboard.type("provider maintenance")
        await keyboard.press("Tab")
        await keyboard.type("10")
        await keyboard.press("Enter")
        await expect(panel.hold("manual")).to_contain_text("provider maintenance")
        await expect(panel.hold("manual")).to_contain_text("9 min")
        ends = re.compile(r"ends: at .*\d\d:\d\d:\d\d, or operator")
        await expect(panel.hold("manual")).to_contain_text(ends)
        await expect(panel.find("[data-stage=pull] .mode")).to_have_text("held")
        await expect(panel.find("[data-stage=query] .mode")).to_have_text("normal")
        (hold,) = live.status()["holds"]["pull"]
        assert (hold["detail"], hold["releases"]) == ("provider maintenance", "operator, or after 600 s")


async def test_escape_leaves_menu_and_dialog_without_a_command(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "escape") as panel:
        for item in ("Pause with reason or time…", "Stop the lane…"):
            await panel.button("More actions").click()
            await panel.page.keyboard.press("Escape")
            await expect(panel.button(item)).to_have_count(0)
            await panel.button("More actions").click()
            await panel.button(item).click()
            await expect(panel.find("dialog")).to_be_visible()
            await panel.page.keyboard.press("Escape")
            await expect(panel.find("dialog")).to_have_count(0)
        assert live.holds("pull") == set()


async def test_the_second_half_of_a_double_click_undoes_nothing(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "double-click") as panel:
        await panel.button("Pause").click()
        await expect(panel.button("Resume")).to_be_enabled()
        await panel.page.mouse.down(click_count=2)
        await panel.page.mouse.up(click_count=2)
        await panel.frames_more(3)
        await panel.shows_state("paused")
        assert live.holds("pull") == {"manual"}


async def test_the_keyboard_stays_at_the_button_that_was_pressed(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "focus") as panel:
        keyboard, more = panel.page.keyboard, panel.button("More actions")
        await panel.button("Pause").focus()
        await keyboard.press("Enter")
        await panel.shows_state("paused")
        await expect(panel.button("Resume")).to_be_focused()
        await keyboard.press("Enter")
        await panel.shows_state("running")
        for leave in (["Escape"], ["Tab", "Tab", "Enter"], ["Enter"]):  # by key, by its button, by doing it
            await more.focus()
            await keyboard.press("Enter")
            await expect(panel.button("Pause with reason or time…")).to_be_focused()
            await keyboard.press("Enter")
            await expect(panel.page.get_by_label("Reason")).to_be_focused()
            for key in leave:
                await keyboard.press(key)
            await expect(panel.find("dialog")).to_have_count(0)
            await expect(more).to_be_focused()
        await panel.shows_state("paused")
        assert live.holds("pull") == {"manual"}


async def test_a_lane_is_stopped_after_a_question_and_started_at_once(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "stop") as panel:
        await panel.button("More actions").click()
        await panel.button("Stop the lane…").click()
        await panel.button("Stop").click()
        await panel.shows_state("stopped")
        assert live.holds("callback") == {"stopped"}
        await panel.button("Start").click()
        await panel.shows_state("running")
        await expect(panel.hold("stopped")).to_have_count(0)
        assert live.holds("callback") == set()


async def test_several_lanes_have_a_switch_and_a_row_each_and_commands_go_to_the_chosen_one(
    browser: Browser,
) -> None:
    lanes = {"first": sim_lane(), "second": sim_lane()}
    async with daemon(lanes) as live, opened(browser, live, "lanes") as panel:
        await expect(panel.find(".lanes tbody tr")).to_have_count(2)
        await panel.find(".lane-switch").get_by_role("button", name="second").click()
        await panel.button("Pause").click()
        await panel.shows_state("paused")
        assert (live.holds("pull", "first"), live.holds("pull", "second")) == (set(), {"manual"})
        await panel.find(".lanes table").get_by_role("button", name="first").click()
        await panel.shows_state("running")
        await panel.button("More actions").click()
        await panel.button("Pause with reason or time…").click()
        title = panel.find("dialog").get_by_role("heading")
        await expect(title).to_have_text("Pause pulling · first")
        await panel.page.get_by_label("All lanes").check()
        await expect(title).to_have_text("Pause pulling · All lanes")
        await panel.find("dialog").get_by_role("button", name="Pause", exact=True).click()
        await panel.shows_state("paused")
        assert live.holds("pull", "first") == {"manual"}


async def test_a_resume_shows_what_somebody_wrote_and_what_it_clears_in_every_lane(browser: Browser) -> None:
    lanes = {"first": sim_lane(), "second": sim_lane()}
    async with daemon(lanes) as live, opened(browser, live, "resume-all") as panel:
        world_of(live, "second").change({"credits": 0})
        await expect(panel.find(".lanes")).to_contain_text("out of credit")
        await live.post("/api/pause?lane=first", reason="lunch")
        await live.post("/api/pause?lane=second", reason="audit")
        await panel.find(".lane-switch").get_by_role("button", name="first").click()
        await panel.button("Resume").click()
        dialog = panel.find("dialog")
        await expect(dialog.locator("li")).to_have_text(["manual pause · lunch"])
        await dialog.get_by_label("All lanes").check()
        await expect(dialog.get_by_role("heading")).to_have_text("Resume · All lanes")
        await expect(dialog.locator("li")).to_have_text(
            [
                "first: manual pause · lunch",
                re.compile("second: out of credit · "),
                "second: manual pause · audit",
            ]
        )
        world_of(live, "second").change({"credits": 1000})
        await dialog.get_by_role("button", name="Resume", exact=True).click()
        await expect(panel.hold("manual")).to_have_count(0)
        assert live.holds("pull", "second") == live.holds("pull", "first") == set()


async def test_a_lane_in_trouble_is_seen_from_every_other(browser: Browser) -> None:
    lanes = {"first": sim_lane(), "second": sim_lane()}
    async with daemon(lanes) as live:
        await live.post("/api/stop?lane=second")
        async with opened(browser, live, "lane-in-trouble") as panel:
            await panel.shows_state("stopped")  # the worst one is looked at first
            switch = panel.find(".lane-switch")
            await switch.get_by_role("button", name="first").click()
            await panel.shows_state("running")
            await expect(switch.get_by_text("stopped")).to_be_visible()
            await expect(panel.find(".top [role=status]")).to_contain_text("second: stopped.")


async def test_tickets_stand_still_under_the_pointer_and_a_trace_can_be_looked_up(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "tickets") as panel:
        column = panel.find("[data-column=callback]")
        await expect(column.locator("b").first).to_have_text("delivered")
        await column.hover()
        await expect(panel.find(".tickets .card-head")).to_contain_text("frozen")
        before = await column.inner_text()
        await panel.frames_more(4)
        assert await column.inner_text() == before
        step = column.locator("button").first
        trace = await step.get_attribute("title")
        await step.click()
        await expect(panel.find(".trace")).to_contain_text(f"Trace {trace}")
        await expect(panel.find(".trace")).to_be_focused()
        await expect(panel.find(".trace")).to_be_in_viewport()
        await panel.page.mouse.move(0, 0)
        await panel.button("Close").click()
        await panel.page.get_by_label("Trace id").fill("no-such-trace")
        await panel.page.keyboard.press("Enter")
        await expect(panel.find(".trace")).to_contain_text("Nothing is kept about this trace")
        await expect(column).not_to_have_text(before)


async def test_tickets_are_reached_by_keyboard_and_an_item_is_found_by_its_key(
    browser: Browser, tmp_path: Path
) -> None:
    async with (
        daemon(daemon={"data_dir": str(tmp_path)}) as live,
        opened(browser, live, "tickets-keys") as panel,
    ):
        rows = panel.find("[data-column=callback] button")
        await expect(rows.nth(2)).to_be_visible()
        await rows.first.focus()
        await panel.page.keyboard.press("Tab")
        await panel.page.keyboard.press("Shift+Tab")
        await expect(panel.find(".tickets .card-head")).to_contain_text("frozen")
        await panel.page.keyboard.press("ArrowDown")
        second = panel.find("[data-column=callback] button:focus")
        trace, key = await second.get_attribute("title"), await second.locator(".name").inner_text()
        assert await panel.find("[data-column=callback] button[tabindex='0']").count() == 1
        await panel.page.keyboard.press("Enter")
        await expect(panel.find(".trace")).to_contain_text(f"Trace {trace}")
        await expect(panel.find(".trace li").first).to_contain_text(key)
        await expect(panel.find(".trace").get_by_text(key)).to_have_count(1)
        await panel.button("Close").click()
        await expect(second).to_be_focused()
        for wanted in (key.rpartition(":")[0], key):
            async with panel.page.expect_response("**/api/traces?**"):
                await panel.page.get_by_label("Trace id").fill(wanted)
                await panel.page.keyboard.press("Enter")
            await expect(panel.find(".trace")).to_contain_text(f"Trace {wanted}")
            await expect(panel.find(".trace li").first).to_contain_text(key)


async def test_a_touch_freezes_the_tickets_for_a_while_and_opens_the_trace(browser: Browser) -> None:
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    async with daemon() as live, opened(browser, live, "tickets-touch", **phone) as panel:
        row, head = panel.find("[data-column=pull] button").first, panel.find(".tickets .card-head")
        box = await row.bounding_box()
        assert box is not None
        assert box["height"] >= 24
        await row.tap()
        await expect(head).to_contain_text("frozen")
        await expect(panel.find(".trace")).to_be_focused()
        await expect(panel.find(".trace")).to_be_in_viewport()
        await expect(head).not_to_contain_text("frozen", timeout=1000 * PATIENCE)


async def test_events_say_what_changed_what_waits_and_what_a_restart_found(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "events-told") as panel:
        counts = {"recovered": 7, "undelivered": 3, "maybe_paid": 2, "dropped": 1}
        for kind, level, detail in (
            (Kind.CONFIG, Level.WARNING, {"changed": ["a.b", "c.d"], "needs_restart": ["e.f"]}),
            (Kind.CONFIG, Level.ERROR, {"error": "e.f: no"}),
            (Kind.STARTED, Level.WARNING, {"unclean": True} | counts),
            (Kind.CLOCK_SKEW, Level.INFO, {"offset": 0, "likely": "over"}),
        ):
            live.daemon._say(kind, level, detail)
        events = panel.find(".events")
        for said in (
            "configuration in force: a.b, c.d · needs a restart: e.f",
            "configuration refused, nothing changed: e.f: no",
            "started after an unclean exit: 7 taken up, 3 with answers, 2 perhaps paid twice, 1 too late",
            "ticket times are right again",
        ):
            await expect(events).to_contain_text(said)
        await panel.button("中文").click()
        await expect(events).to_contain_text("配置已生效：a.b、c.d · 重启后才生效：e.f")


async def test_the_tank_and_the_backlog_are_drawn_against_the_bounds_in_force(browser: Browser) -> None:
    lane = sim_lane(sim={"rate": 2}, callback={"backlog_count": 2000})  # so slow that few may wait
    async with daemon({LANE: lane}) as live, opened(browser, live, "bounds") as panel:
        await expect(panel.find(".tank .room")).to_be_visible()
        await expect(panel.find("[data-stage=queue]")).to_contain_text(re.compile(r"room for \d+"))
        world_of(live).change({"rate": 100, "callback": {"error": 1.0}})
        backlog = panel.find("[data-stage=callback] [role=meter]").last
        await expect(backlog).to_have_attribute("aria-valuenow", re.compile(r"^0\.\d"))
        await expect(panel.find("[data-stage=callback]")).to_contain_text(re.compile(r"\d % full"))
        world_of(live).change({"rate": 0, "callback": {"error": 0.0}})


async def test_events_are_filtered_and_can_be_taken_away(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "events") as panel:
        events = panel.find(".events .event")
        await live.post("/api/pause", reason="for the filter")
        await live.post("/api/resume")
        world_of(live).change({"auth_refused": True})
        await expect(panel.hold("auth")).to_be_visible()
        await panel.page.get_by_label("Level").select_option("error")
        await expect(events).to_have_count(1)
        await expect(events).to_contain_text("held: credentials refused")
        await panel.page.get_by_label("Level").select_option("")
        await panel.page.get_by_label("Stage").select_option("callback")
        await expect(events).to_have_count(0)
        await panel.page.get_by_label("Stage").select_option("pull")
        await panel.page.get_by_label("Text").fill("FOR THE FILTER")
        await expect(events).to_have_count(1)
        async with panel.page.expect_download() as started:
            await panel.button("Download").click()
        path = await (await started.value).path()
        (line,) = path.read_text().splitlines()
        assert json.loads(line)["detail"]["detail"] == "for the filter"


async def test_the_numbers_on_the_page_are_the_daemons(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "numbers") as panel:
        await eventually(lambda: live.counter("delivered") > 100)
        await all_is_done(live)
        counters = live.status()["counters"]
        for name, counter in (("pulled", "pulled"), ("delivered", "delivered"), ("duplicates", "duplicates")):
            await shows_count(panel, name, counters[counter])
        await expect(panel.find(".books")).to_contain_text("balanced")
        await expect(panel.find(".drop")).to_contain_text("Nothing dropped")
        await expect(panel.find("[data-stage=queue] .speed")).to_have_text("0")


async def test_a_drop_rate_is_not_called_good_before_there_are_enough_to_judge(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "not-judged") as panel:
        world_of(live).change({"rate": 0})
        await live.post("/api/resume")  # which begins the count afresh
        await expect(panel.find(".drop")).to_contain_text("Not judged until 100")
        await expect(panel.find(".drop .mode")).to_have_count(0)
        world_of(live).change({"rate": 100})
        await expect(panel.find(".drop .mode")).to_have_text("ok")


async def test_the_money_is_the_daemons_and_what_was_paid_in_vain_is_named(browser: Browser) -> None:
    lane = sim_lane(
        retry={"delay": 0.05},
        callback={"max_age": 1.4, "retry_interval": 0.05},
        drop_rate={"min_total": 100_000},  # a hard stop would keep what waits from ending
    )
    async with daemon({LANE: lane}) as live, opened(browser, live, "money") as panel:
        world = world_of(live)
        world.change({"credits": 100_000})
        await eventually(lambda: live.counter("delivered") > 40)
        world.change({"callback": {"error": 1.0}})
        await eventually(lambda: sum(live.counter(name) for name in LOST) > 5, why=live.status)
        world.change({"callback": {"error": 0.0}})
        await all_is_done(live)
        await live.daemon.lanes[LANE].side_calls_once()
        credits = live.status()["credits"]
        assert credits["balance"] == world.credits_left() < 100_000
        lost = sum(live.counter(name) for name in LOST)
        await expect(panel.find(".money .speed").first).to_have_text(f"{credits['balance']:,.0f}")
        await shows_row(panel, "Spent", f"{credits['spent']:,.0f}")
        await shows_row(panel, "On lost tickets", f"{lost:,}")
        today = live.status()["upstream"]["today"]
        await shows_row(panel, "Upstream’s count today", f"{today:,}")


async def test_an_empty_account_is_red_and_lasts_for_no_time_that_is_told(browser: Browser) -> None:
    async with daemon() as live, opened(browser, live, "money-gone") as panel:
        world_of(live).change({"credits": 0})
        await expect(panel.hold("credit")).to_be_visible()
        await live.daemon.lanes[LANE].side_calls_once()
        red, lasts = panel.find(".money .heads .bad"), panel.find(".money .speed").last
        await expect(red).to_have_text("0Credits left")
        await expect(lasts).to_have_text("–")


async def shows_row(panel: Panel, name: str, value: str) -> None:
    row = panel.find(".money .rows li").filter(has_text=name)
    await expect(row.locator("b")).to_have_text(value)


async def all_is_done(live: Live) -> None:
    world = world_of(live)
    world.change({"rate": 0})

    def over() -> bool:
        arrived = live.counter("pulled") == world.ledger.counts["handed_out"] + world.ledger.counts["repeats"]
        return arrived and not world.truth()["backlog"] and not live.daemon.lanes[LANE].in_flight()

    await eventually(over, why=world.truth)


async def shows_count(panel: Panel, name: str, number: int) -> None:
    entry = panel.find(".books div").filter(has=panel.page.get_by_text(name, exact=True))
    await expect(entry.locator("dd")).to_have_text(f"{number:,}")
