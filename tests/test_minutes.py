"""The minutes of a lane: told as they go, so that a sudden end costs its report next to nothing."""

from __future__ import annotations

from typing import Any

from pipeline.config import LaneConfig, SimConfig
from pipeline.events import Bus
from pipeline.journal.history import Minute, lane_report
from pipeline.journal.silent import SilentJournal
from pipeline.lane import Lane
from pipeline.minutes import Minutes
from pipeline.sim.behaviour import Behaviour
from pipeline.sim.ports import sim_ports
from pipeline.sim.virtual import VirtualClock, run_virtual


def status(delivered: int, spent: float = 0.0) -> dict[str, Any]:
    latency: dict[str, Any] = {"p50": None, "p95": None, "p99": None}
    return {
        "counters": {"delivered": delivered},
        "credits": {"spent": spent},
        "stages": {name: {"latency": latency, "rate_per_min": 0} for name in ("pull", "query", "callback")},
        "queue": {"pending": 0, "delayed": 0},
        "callbacks": {"pending": 0, "retrying": 0, "bytes": 0},
        "drop_rate": {"rate": 0.0},
    }


def test_what_is_told_of_a_running_minute_grows_until_it_is_over() -> None:
    minutes = Minutes()
    minutes.held(["manual"], 2.0)
    assert minutes.so_far(status(3, 3.0))["counters"] == {"delivered": 3, "spent": 3}
    minutes.held(["manual"], 1.0)
    told = minutes.so_far(status(5, 5.0))
    assert (told["counters"]["delivered"], told["holds"]) == (5, {"manual": 3.0})
    minutes.begin_anew(status(5, 5.0))
    told = minutes.so_far(status(6, 6.0))
    assert (told["counters"], told["holds"]) == ({"delivered": 1, "spent": 1}, {})


class Shelf(SilentJournal):
    """Keeps what it is told as the database does: by lane and moment, the later in place of the earlier."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[float, Minute] = {}

    def minute(self, lane: str, at: float, data: Minute) -> None:
        self.rows[at] = data

    def delivered(self) -> int:
        return lane_report(sorted(self.rows.items())).delivered


def test_a_sudden_end_costs_the_report_the_last_ten_seconds_and_no_minute_is_told_twice() -> None:
    async def run(clock: VirtualClock) -> None:
        shelf, config = Shelf(), LaneConfig(source="sim", provider="sim", sink="sim")
        ends = sim_ports("shopee", SimConfig(), clock, Behaviour(rate=5, page_min=1000, page_max=1200))
        lane = Lane("shopee", config, *ends, clock, Bus(), shelf)
        await lane.open()
        missed = []
        for _ in range(40):
            await clock.sleep(7.3)
            delivered = lane.controller.ledger.counters["delivered"]
            missed.append(delivered - lane_report(sorted(shelf.rows.items())).delivered)
        assert min(missed) >= 0
        assert max(missed) <= 5 * 10 * 2
        await lane.close()
        assert (
            lane_report(sorted(shelf.rows.items())).delivered == lane.controller.ledger.counters["delivered"]
        )
        assert 4 <= len(shelf.rows) <= 6, "a row a minute"

    run_virtual(run)
