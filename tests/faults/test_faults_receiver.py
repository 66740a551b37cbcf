"""Faults 16 and 17: the receiver of callbacks says half a word, or nothing for ten minutes."""

from __future__ import annotations

from pipeline.events import Kind
from tests.e2e.harness import LANE, eventually, merged
from tests.faults.fault_proxy import Door, Faults
from tests.faults.faulty_world import QUICK_BREAKER, SHORT_LIVES, stage

EAGER = {"per_second": 1000}


async def test_16_a_callback_whose_answer_is_cut_off_is_sent_again_with_the_same_trace() -> None:
    lane = {"retry": EAGER, "breaker": {"trip_after": 1_000_000, "min_samples": 1_000_000}}
    async with stage(lane, callback={"truncate": 0.3}) as play:
        await eventually(lambda: play.server.world.ledger.counts["again_after_cut"] > 20)
        play.server.world.change({"callback": {"truncate": 0.0}})
        truth = await play.all_ended()
        assert truth["delivered"] == truth["handed_out"] == play.counter("delivered")
        # As many as were cut off were taken twice, each under its own trace; and that is noted.
        assert truth["again_after_cut"] == play.counter("callback_faults")
        assert play.record.steps["callback", "fault"] == play.counter("callback_faults")
        assert truth["paid"] == truth["keys_delivered"]


async def test_17_a_receiver_that_is_down_costs_bounded_memory_counted_drops_and_nobody_has_to_come() -> None:
    """Ten minutes against an age of 290 s, here three seconds and more against 2.9."""
    backlog = 100
    lane = merged(
        SHORT_LIVES,
        {
            "breaker": {**QUICK_BREAKER, "window": 2},
            "queue": {"high_water": 200, "low_water": 20},
            "callback": {"backlog_count": backlog, "retry_interval": 0.2},
            "query": {"workers": 4},
            # So short a life makes more of the tickets in hand late than the real one would.
            "drop_rate": {"degrade": 0.3, "trip": 0.4, "stop": 0.5},
        },
    )
    async with stage(lane, rate=250) as play:
        await play.delivers(700)
        play.callback.door = Door.RESET
        play.callback.up = Faults(reset_after=0)  # connections of before end with their next request
        delivered = play.counter("delivered")
        await eventually(lambda: play.told("breaker callback"))
        await eventually(lambda: "callback_backlog" in play.live.holds("query"), why=play.live.status)
        clock = play.live.daemon.clock
        began = clock.monotonic()
        await eventually(lambda: clock.monotonic() - began > 3)
        dropped = sum(play.live.status()["dropped"].values())
        assert dropped > 0
        assert play.counter("delivered") <= delivered + 100  # those under way at that moment
        # Answers on hand: the bound, and what the 40 slots were asking when it was reached.
        assert play.record.backlog_max <= backlog + 40
        play.callback.heal()
        await play.delivers(300)
        await play.all_ended()
        await eventually(lambda: play.live.status()["state"] in ("running", "degraded"))
        held = [event.detail["reason"] for event in play.watch.of_kind(Kind.HOLD)]
        assert "drop_rate" not in held
        assert play.live.status(LANE)["callbacks"] == {"pending": 0, "retrying": 0, "bytes": 0, "fill": 0}
        by_hand = [e for e in play.watch.of_kind(Kind.RELEASE) if e.detail["by"].startswith(("api", "panel"))]
        assert by_hand == []
