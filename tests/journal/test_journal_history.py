from datetime import UTC, date, datetime, timedelta, timezone

from journal_makers import LANE, World, flushed

from pipeline.journal.history import LongHold, longest_holds

DAY = date(2026, 3, 1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


async def test_minutes_come_back_oldest_first_after_a_restart(world: World):
    async with world.opened() as journal:
        for minute in (2, 0, 1):
            journal.minute(LANE, NOON + 60 * minute + 5, {"counters": {"pulled": minute}})
        journal.minute("other", NOON, {"counters": {"pulled": 9}})
    async with world.opened() as journal:
        found = await journal.history(LANE, NOON, NOON + 180)
        assert found == [{"at": NOON + 60 * minute, "counters": {"pulled": minute}} for minute in range(3)]


async def test_larger_steps_add_counts_average_rates_and_keep_the_worst_latency(world: World):
    async with world.opened() as journal:
        for minute, value in enumerate((1, 2, 6)):
            sections = ("counters", "holds", "events", "latencies", "rates")
            journal.minute(LANE, NOON + 60 * minute, {name: {"x": value} for name in sections})
        journal.minute(LANE, NOON + 300, {"counters": {"x": 50}, "latencies": {"x": None}})
        await flushed(journal)
        first, second = await journal.history(LANE, NOON, NOON + 3600, step=300)
        assert first == {
            "at": NOON,
            "counters": {"x": 9},
            "holds": {"x": 9},
            "events": {"x": 9},
            "latencies": {"x": 6},
            "rates": {"x": 3},
        }
        assert second == {"at": NOON + 300, "counters": {"x": 50}, "latencies": {}}


async def test_both_parts_of_a_minute_with_a_restart_in_it_count(world: World):
    async with world.opened() as journal:
        journal.minute(LANE, NOON + 20, {"counters": {"delivered": 1}, "holds": {"credit": 5}})
    async with world.opened() as journal:
        journal.minute(LANE, NOON + 59, {"counters": {"delivered": 2}, "holds": {"credit": 7}})
        await flushed(journal)
        whole = {"at": NOON, "counters": {"delivered": 3}, "holds": {"credit": 12}}
        assert await journal.history(LANE, NOON, NOON + 60) == [whole]
        report = (await journal.report(DAY, UTC))[LANE]
        assert report.delivered == 3
        assert report.longest_holds == (LongHold("credit", int(NOON), 12),)


async def test_a_minute_and_the_short_one_after_it_that_end_in_one_second_both_count(world: World):
    async with world.opened() as journal:
        journal.minute(LANE, NOON + 59.1, {"counters": {"delivered": 600}})
        journal.minute(LANE, NOON + 59.9, {"counters": {"delivered": 7}})
        await flushed(journal)
        assert (await journal.report(DAY, UTC))[LANE].delivered == 607


async def test_a_days_report_has_deliveries_drops_money_and_holds_by_lane(world: World):
    async with world.opened() as journal:
        counters = {"delivered": 10, "answered": 9, "offline": 3, "query_stale": 1, "queue_expired": 4}
        journal.minute(LANE, NOON, {"counters": counters | {"rejected": 2}, "holds": {"credit": 20}})
        journal.minute(LANE, NOON + 60, {"counters": {"delivered": 5}, "holds": {"credit": 60}})
        journal.minute("idle", NOON, {"counters": {"delivered": 0}})
        journal.minute("priced", NOON, {"counters": {"delivered": 4, "answered": 4, "spent": 1.0}})
        journal.minute(LANE, NOON + 86_400, {"counters": {"delivered": 1000}})
        await flushed(journal)
        report = await journal.report(DAY, UTC)
        assert set(report) == {LANE, "idle", "priced"}
        lane = report[LANE]
        assert (lane.delivered, lane.rejected, lane.paid) == (15, 2, 12)
        assert list(lane.dropped.items()) == [("queue_expired", 4), ("query_stale", 1)]
        assert lane.cost_per_delivery == 12 / 15
        assert lane.longest_holds == (LongHold("credit", int(NOON), 80),)
        assert report["idle"].cost_per_delivery is None
        assert report["priced"].cost_per_delivery == 0.25


async def test_a_day_begins_at_the_zones_midnight(world: World):
    async with world.opened() as journal:
        journal.minute(LANE, NOON + 5 * 3600, {"counters": {"delivered": 1}})
        await flushed(journal)
        shanghai = timezone(timedelta(hours=8))
        assert await journal.report(DAY, shanghai) == {}
        assert (await journal.report(DAY + timedelta(days=1), shanghai))[LANE].delivered == 1


def test_a_hold_with_a_gap_is_two_holds_and_the_longest_come_first():
    minutes = [
        (0, {"holds": {"a": 30}}),
        (60, {"holds": {"a": 60, "b": 5}}),
        (120, {}),
        (180, {"holds": {"a": 9}}),
    ]
    minutes.append((600, {"holds": {"a": 8}}))
    assert longest_holds(minutes) == (
        LongHold("a", 0, 90),
        LongHold("a", 180, 9),
        LongHold("a", 600, 8),
        LongHold("b", 60, 5),
    )


def test_a_hold_is_one_hold_though_its_minutes_end_a_little_later_each_time():
    minutes = [(59.98, {"holds": {"a": 60}}), (120.01, {"holds": {"a": 60}}), (180.04, {"holds": {"a": 60}})]
    assert longest_holds(minutes) == (LongHold("a", 0, 180),)
