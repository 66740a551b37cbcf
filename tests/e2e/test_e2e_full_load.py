"""300 tickets a second of real size with default settings. `TIDEGATE_FULL=1` runs the whole minute."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import aiohttp
import uvloop

from tests.e2e.harness import LANE, assert_balanced, eventually, running, settings_tree
from tests.e2e.processes import tidegate

RATE = 300
SECONDS = 60 if os.environ.get("TIDEGATE_FULL") == "1" else 8


def test_300_tickets_a_second_are_all_delivered_once_and_in_time_below_the_high_mark() -> None:
    """On uvloop, as in `tidegate run`."""
    uvloop.run(run_at_full_load())


async def run_at_full_load() -> None:
    async with tidegate("sim", "--port", "0", "--rate", str(RATE)) as sim:
        url = (await sim.says(b"http://")).decode()
        pull, query = {"url": url, "phone": "1"}, {"url": url, "token": "q"}
        ends = {"pull": pull, "query": query, "callback": {"url": url}}
        async with running(settings_tree({LANE: ends})) as live, aiohttp.ClientSession(url) as world:

            async def truth() -> dict[str, Any]:
                async with world.get("/sim/truth") as response:
                    found: dict[str, Any] = await response.json()
                    return found

            began = live.daemon.clock.monotonic()
            await eventually(lambda: live.daemon.clock.monotonic() - began > SECONDS, within=2 * SECONDS + 30)
            assert_balanced(await live.lane())
            async with world.post("/sim/behaviour", json={"rate": 0}) as response:
                assert response.status == 200
            async with asyncio.timeout(2 * SECONDS + 30):
                while (await truth())["backlog"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            handed_out = (await truth())["handed_out"]
            lane = live.daemon.lanes[LANE]
            await eventually(
                lambda: live.counter("pulled") == handed_out and not lane.in_flight(), within=2 * SECONDS + 30
            )
            status, seen = await live.lane(), await truth()
    counters = status["counters"]
    print({name: seen[name] for name in ("handed_out", "delivered", "queries", "delivered_age_max")})
    assert handed_out > RATE * SECONDS * 0.8
    assert seen["delivered"] == seen["on_time"] == counters["delivered"]
    assert seen["delivered"] == handed_out - counters["duplicates"]
    wrong = ("late", "twice", "unknown", "wrong_token", "bad_results", "protocol_errors", "paid_again")
    assert {name: seen[name] for name in wrong} == dict.fromkeys(wrong, 0)
    assert seen["results_checked"] > handed_out / 100
    assert seen["concurrent_same_key_max"] == 1
    assert status["queue"]["peak"] <= 1.05 * status["queue"]["high_water"]
    assert_balanced(status)
