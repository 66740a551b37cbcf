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

from pipeline.sim.truth import TOKEN
from tests.e2e.harness import (
    LANE,
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
        assert child.err.splitlines()[-1] == b"journal: journal.db: disk full"
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
