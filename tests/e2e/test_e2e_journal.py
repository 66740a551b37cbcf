"""What survives: kills, restarts, a locked, damaged or full database. (FAULTS 18 to 22)"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pipeline.callback.http import HttpSink
from pipeline.lane.recovery import LISTED_MAX
from pipeline.sim.truth import TOKEN
from pipeline.ticket import Answer, Receipt, Ticket
from tests.e2e.harness import (
    LANE,
    Live,
    assert_all_delivered_once,
    assert_balanced,
    eventually,
    lane_tree,
    running,
    settings_tree,
    upstream_runs_dry,
    world,
)
from tests.e2e.processes import tidegate, toml


def journalled(url: str, folder: Path, **lane: Any) -> dict[str, Any]:
    return settings_tree({LANE: lane_tree(url, **lane)}, daemon={"data_dir": str(folder)})


async def test_after_a_kill_nothing_that_was_written_down_is_lost_and_the_restart_is_told(
    tmp_path: Path,
) -> None:
    """FAULTS 18."""
    async with world(rate=100, query={"latency": 0.3}) as server:
        tree = journalled(server.url, tmp_path)
        config = tmp_path / "config.toml"
        config.write_text(toml(tree), encoding="utf-8")
        async with tidegate("run", "--config", str(config)) as child:
            await child.url()
            await eventually(lambda: server.world.ledger.counts["delivered"] > 100)
            child.send(signal.SIGKILL)
            await child.ended()
        with closing(sqlite3.connect(tmp_path / "journal.db")) as journal:
            written = dict(journal.execute("SELECT trace_id, outcome FROM ticket"))
        sure = sum(outcome == "delivered" for outcome in written.values())
        before = server.world.ledger.counts["delivered"]
        async with running(tree) as live:
            (started,) = await live.events("started")
            assert started["detail"]["unclean"]
            assert started["detail"]["recovered"] > 0
            listed = started["detail"]["maybe_paid_traces"]
            assert len(listed) == min(started["detail"]["maybe_paid"], LISTED_MAX) > 0
            assert {written[trace] for trace in listed} == {None}
            await upstream_runs_dry(server)
            await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
            assert_balanced(await live.lane())
            truth = server.world.truth()
            for trace in written:
                known = server.world.ledger.find(f"{TOKEN}{trace}")
                assert known is not None
                assert known.delivered is not None, trace
            # Twice only what was accepted so shortly before the kill that no disk could know.
            assert truth["twice"] <= before - sure, truth
            assert truth["late"] == 0


async def test_a_restart_after_a_clean_end_pays_for_nothing_twice(tmp_path: Path) -> None:
    """FAULTS 19 and invariant 11."""
    async with world(rate=60, repeat_share=0.5) as server:
        for number in range(3):
            async with running(journalled(server.url, tmp_path)) as live:
                delivered = server.world.ledger.counts["delivered"]
                await eventually(lambda: server.world.ledger.counts["delivered"] > delivered + 50)  # noqa: B023
                (started,) = await live.events("started")
                assert not started["detail"].get("unclean")
                if number == 2:
                    await upstream_runs_dry(server)
                    await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
        truth = server.world.truth()
        assert truth["paid_again"] == 0
        assert_all_delivered_once(truth)


@pytest.mark.parametrize("first", ["simulated", "real"])
async def test_no_ticket_of_the_simulation_reaches_a_real_end_nor_a_real_one_the_simulation(
    tmp_path: Path, first: str
) -> None:
    """The same lane and the same journal, a moment later."""
    async with world(rate=50, query={"latency": 60}) as server:
        lanes = {
            "simulated": dict.fromkeys(("source", "provider", "sink"), "sim"),
            "real": lane_tree(server.url),
        }
        (second,) = lanes.keys() - {first}
        hasty = {"data_dir": str(tmp_path), "drain_timeout": 0}
        async with running(settings_tree({LANE: lanes[first]}, daemon=hasty)) as live:
            await eventually(lambda: live.counter("queried") > 3)
        (stopped,) = events_of(live, "stopped")
        async with running(settings_tree({LANE: lanes[second]}, daemon=hasty)) as live:
            assert live.counter("restart") == stopped["in_flight"] > 0
            assert live.counter("recovered") == 0
            assert_balanced(await live.lane())
        truth = server.world.truth()
        assert (truth["unknown"], truth["wrong_token"], truth["protocol_errors"]) == (0, 0, 0)


def events_of(live: Live, kind: str) -> list[dict[str, Any]]:
    """Of a daemon that has ended: its endpoint answers no more."""
    return [dict(event.detail) for event in live.daemon.bus.recent() if event.kind == kind]


async def test_a_database_locked_by_another_process_holds_the_pull_until_it_is_free(tmp_path: Path) -> None:
    """FAULTS 21."""
    async with world(rate=50) as server, running(journalled(server.url, tmp_path)) as live:
        await eventually(lambda: live.counter("delivered") > 20)
        other = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await eventually(lambda: "journal" in live.holds())
        delivered = live.counter("delivered")
        await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
        assert live.counter("delivered") >= delivered
        other.execute("COMMIT")
        other.close()
        await eventually(lambda: "journal" not in live.holds())
        before = live.counter("delivered")
        await eventually(lambda: live.counter("delivered") > before + 20)
        assert_balanced(await live.lane())


async def test_a_damaged_database_is_set_aside_with_its_date_and_a_new_one_begun(tmp_path: Path) -> None:
    """FAULTS 22."""
    async with world(rate=50) as server:
        async with running(journalled(server.url, tmp_path)) as live:
            await eventually(lambda: live.counter("delivered") > 100)
        database = tmp_path / "journal.db"
        with database.open("r+b") as file:
            file.seek(100)
            file.write(os.urandom(8192))
        async with running(journalled(server.url, tmp_path)) as live:
            await eventually(lambda: live.counter("delivered") > 20)
            told = await live.events("journal")
            assert [event["detail"]["what"] for event in told] == ["set_aside"]
            assert any(told[0]["detail"]["file"] in name for name in os.listdir(tmp_path))
            assert "journal" not in live.holds()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=2m", "tidegate-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(bytes(4096))


async def test_a_full_disk_holds_the_pull_and_it_goes_on_when_there_is_room(small_disk: Path) -> None:
    """FAULTS 20."""
    async with world(rate=100) as server, running(journalled(server.url, small_disk)) as live:
        await eventually(lambda: live.counter("delivered") > 20)
        filler = small_disk / "filler"
        fill(filler)
        await eventually(lambda: "journal" in live.holds())
        await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
        filler.unlink()
        await eventually(lambda: "journal" not in live.holds())
        before = live.counter("delivered")
        await eventually(lambda: live.counter("delivered") > before + 20)
        assert_balanced(await live.lane())


async def test_a_disk_that_is_full_at_the_start_is_one_line_and_exit_1(
    small_disk: Path, tmp_path: Path
) -> None:
    fill(small_disk / "filler")
    config = tmp_path / "config.toml"
    config.write_text(toml(journalled("http://127.0.0.1:9", small_disk)), encoding="utf-8")
    async with tidegate("run", "--config", str(config)) as child:
        assert await child.ended() == 1
        said = f"Error: journal: {small_disk / 'journal.db'}: disk full (see daemon.data_dir)"
        assert child.err.splitlines()[-1] == said.encode()
        assert b"rows_lost" not in child.err


async def test_answers_that_wait_for_a_retry_leave_memory_and_come_back(tmp_path: Path) -> None:
    bounds = {"backlog_bytes": 200_000, "retries": 50, "retry_interval": 0.3}
    faults = {"breaker": {"trip_after": 10_000, "min_samples": 10_000}}
    async with (
        world(rate=60, callback={"error": 1.0}) as server,
        running(journalled(server.url, tmp_path, callback=bounds, **faults)) as live,
    ):
        backlog = live.daemon.lanes[LANE].callback.backlog
        await eventually(lambda: backlog.bytes > 200_000)
        await eventually(lambda: "callback_backlog" in live.holds("query"))
        await eventually(lambda: backlog.in_memory <= 120_000)
        server.world.change({"callback": {"error": 0.0}})
        await upstream_runs_dry(server)
        await live.all_ended(server)
        assert (backlog.count, backlog.bytes, backlog.in_memory) == (0, 0, 0)
        assert_all_delivered_once(server.world.truth())


async def test_at_level_answers_every_answer_is_on_disk_when_its_callback_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver, tried, missing = HttpSink.deliver, 0, []
    on_disk = "SELECT answer.size FROM ticket JOIN answer ON answer.id = ticket.answer WHERE trace_id = ?"

    async def watched(sink: HttpSink, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        nonlocal tried
        tried += 1
        with closing(sqlite3.connect(tmp_path / "journal.db")) as journal:
            if journal.execute(on_disk, (ticket.trace_id,)).fetchall() != [(len(answer.body),)]:
                missing.append(ticket.trace_id)
        return await deliver(sink, ticket, answer, timeout)

    monkeypatch.setattr(HttpSink, "deliver", watched)
    async with world(rate=50) as server:
        tree = journalled(server.url, tmp_path) | {"journal": {"level": "answers"}}
        async with running(tree) as live:
            await eventually(lambda: live.counter("delivered") > 100)
            await upstream_runs_dry(server)
            await live.all_ended(server)
    assert tried > 100
    assert missing == []


async def test_answers_in_hand_at_a_clean_end_are_on_disk_and_not_paid_for_again(tmp_path: Path) -> None:
    """The receiver is down when the operator restarts: what waits behind its breaker was never tried."""
    bounds = {"retries": 50, "retry_interval": 0.3}
    faults = {"breaker": {"trip_after": 10, "pause": 60, "pause_max": 60}}
    async with world(rate=60, callback={"error": 1.0}) as server:
        tree = journalled(server.url, tmp_path, callback=bounds, **faults)
        async with running(tree) as live:
            stage = live.daemon.lanes[LANE].callback
            await eventually(lambda: "breaker" in live.holds("callback"))
            await eventually(lambda: stage.line.pending > 50, why=live.status)
            await upstream_runs_dry(server)
        server.world.change({"callback": {"error": 0.0}})
        async with running(tree) as live:
            (started,) = await live.events("started")
            assert started["detail"]["undelivered"] == started["detail"]["recovered"] > 50
            await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
        assert_all_delivered_once(server.world.truth())


async def test_a_disk_that_cannot_be_read_for_a_while_costs_no_answer_that_is_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {"backlog_bytes": 100_000, "retries": 50, "retry_interval": 0.3}
    faults = {"breaker": {"trip_after": 10_000, "min_samples": 10_000}}
    failed: list[int] = []

    def fails(connection: sqlite3.Connection, number: int) -> None:
        failed.append(number)
        raise sqlite3.OperationalError("disk I/O error")

    async with (
        world(rate=60, callback={"error": 1.0}) as server,
        running(journalled(server.url, tmp_path, callback=bounds, **faults)) as live,
    ):
        backlog = live.daemon.lanes[LANE].callback.backlog
        await eventually(lambda: backlog.in_memory < backlog.bytes)
        with monkeypatch.context() as patch:
            patch.setattr("pipeline.journal.journal.read_answer", fails)
            server.world.change({"callback": {"error": 0.0}})
            await eventually(lambda: len(failed) > 5)
        await upstream_runs_dry(server)
        await live.all_ended(server)
        assert_all_delivered_once(server.world.truth())
