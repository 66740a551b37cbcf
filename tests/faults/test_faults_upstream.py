"""Faults 11 to 13: too many tickets, the same ones again, and dates of every shape."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from aiohttp import web

from pipeline.events import Kind
from tests.e2e.harness import LANE, eventually, merged, rss_bytes, running
from tests.e2e.test_e2e_bad_input import MB, all_done, bad_world, entry, listed, quick, still_works
from tests.faults.faulty_world import stage
from tests.faults.invariants import Watch, check_invariants

#: As short as a ticket can be written: 300,000 of them are within `max_body`, a million are not.
SHORT = b'{"shop_id":7,"good_id":%d,"country":"t"}'


def crowd(number: int) -> bytes:
    return b'{"success":true,"tasks":[' + b",".join(SHORT % n for n in range(number)) + b"]}"


async def test_11_a_hundred_thousand_tickets_in_one_pull_are_cut_counted_and_told() -> None:
    many = 100_000
    async with bad_world() as bad, running(quick(bad.url)) as live:
        watch = Watch(live.daemon)
        bad.hand_out(listed(entry("warm-up")))
        await eventually(lambda: bad.delivered["warm-up"] == 1)
        tickets = crowd(many)
        before = rss_bytes()
        bad.hand_out(tickets)
        await eventually(lambda: live.counter("pulled") == many + 1)
        assert rss_bytes() - before < 500 * MB
        await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
        overflow = live.counter("overflow")
        assert overflow + live.counter("delivered") == many + 1
        (told,) = watch.of_kind(Kind.OVERFLOW)
        assert told.detail["got"] == many
        assert told.detail["count"] == overflow >= many - 1000
        assert live.status()["drop_rate"]["dropped"] == 0  # not our slowness
        await still_works(live, bad)
        check_invariants(watch, None, [])


async def test_11_a_million_tickets_in_one_pull_are_told_leave_memory_bounded_and_the_lane_working() -> None:
    async with bad_world() as bad, running(quick(bad.url)) as live:
        watch = Watch(live.daemon)
        tickets = crowd(1_000_000)
        before = rss_bytes()
        bad.hand_out(tickets)
        await eventually(lambda: live.counter("pull_faults") + live.counter("pulled") > 0)
        assert rss_bytes() - before < 500 * MB
        assert live.counter("pull_faults") == 1
        await still_works(live, bad)
        (told,) = watch.of_kind(Kind.TOO_LARGE)
        assert told.stage == "pull"
        assert str(live.daemon.lanes[LANE].config.pull.max_body) in told.detail["error"]
        check_invariants(watch, None, [])


@pytest.mark.parametrize("dedupe", ["join", "drop"])
async def test_12_duplicates_within_and_across_pulls_are_joined_or_dropped_and_all_accounted_for(
    dedupe: str,
) -> None:
    async with stage(
        {"queue": {"dedupe": dedupe}}, duplicate_share=0.5, repeat_share=0.3, query={"latency": 0.2}
    ) as play:
        await eventually(lambda: play.counter("duplicates") > 50 and play.counter("delivered") > 50)
        if dedupe == "join":
            await eventually(lambda: play.counter("joined") > 10)
        truth = await play.all_ended()
        pulled = play.counter("pulled")
        assert pulled == truth["handed_out"] + truth["repeats"]
        assert pulled == play.counter("delivered") + play.counter("duplicates")
        # One paid query for each key, however many tickets wanted it.
        assert truth["paid"] == truth["keys_delivered"] == truth["unique_keys"]
        assert truth["paid_again"] == 0
        assert truth["repeats"] > 10
        if dedupe == "drop":
            assert play.counter("joined") == 0
            assert truth["delivered"] == truth["unique_keys"]


async def test_12_a_ticket_handed_out_again_after_its_delivery_is_a_duplicate_while_its_key_flies() -> None:
    async with bad_world() as bad, running(quick(bad.url)) as live:
        tokens: list[str] = []
        second_may_end = asyncio.Event()

        async def receive(answers: Any, _shop: str, request: web.Request) -> None:
            if answers is bad.bad_receipts:
                tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
                if tokens[-1] == "second":
                    await second_may_end.wait()

        bad._once = receive  # type: ignore[method-assign]
        first, second = (entry("same", trace_id=name, token=name) for name in ("first", "second"))
        bad.hand_out(listed(first, second))
        await eventually(lambda: live.counter("delivered") == 1 and "second" in tokens)
        bad.hand_out(listed(first))
        await eventually(lambda: live.counter("pulled") == 3)
        await eventually(lambda: live.counter("duplicates") or live.counter("delivered") == 2)
        second_may_end.set()
        await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
        assert sorted(tokens) == ["first", "second"]


def dates() -> dict[str, tuple[Any, float]]:
    """By name: what upstream writes, and the age we must read; 0 where the pull's moment takes its place."""
    now = time.time()
    made = now - 100
    moment = datetime.fromtimestamp(made, UTC)
    local = moment.astimezone(ZoneInfo("Asia/Shanghai"))
    return {
        "seconds": (int(made), 100),
        "milliseconds": (int(made * 1000), 100),
        "text-seconds": (str(int(made)), 100),
        "iso-utc": (moment.isoformat(), 100),
        "iso-offset": (moment.astimezone(ZoneInfo("America/New_York")).isoformat(), 100),
        "local": (local.strftime("%Y-%m-%d %H:%M:%S"), 100),
        "negative": (-5, 0),
        "future": ((moment + timedelta(days=1)).isoformat(), 0),
        "future-ms": (int((now + 3600) * 1000), 0),
        "list": ([2024, 1, 1], 0),
        "null": (None, 0),
        "word": ("yesterday", 0),
    }


async def test_13_a_date_of_any_shape_is_read_or_replaced_by_the_moment_of_the_pull() -> None:
    async with bad_world() as bad, running(quick(bad.url)) as live:
        watch = Watch(live.daemon)
        shapes = dates()
        bad.hand_out(listed(*(entry(name, created_at=date) for name, (date, _) in shapes.items())))
        bad.hand_out(listed(entry("absent")))
        counters = (await all_done(live, bad, len(shapes) + 1))["counters"]
        steps = {
            step.trace_id: step for step in live.daemon.lanes[LANE].recent_steps() if step.stage == "pull"
        }
        for name, (_, age) in merged(shapes, {"absent": (None, 0)}).items():
            assert abs(steps[f"{name}-1"].age - age) < 5, name
        assert counters["undated"] == 5
        assert counters["future_dated"] == 2
        assert counters["delivered"] == len(shapes) + 1
        assert counters["worker_crashes"] == counters["pull_expired"] == 0
        await still_works(live, bad)
        check_invariants(watch, None, [])
