"""Faults 19 to 22: told to end under load; a disk that is full, locked or damaged.

Fault 18, a kill at any moment, is judged trace by trace in tests/test_bench_kill.py.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.e2e.harness import (
    LANE,
    eventually,
    lane_tree,
    merged,
    running,
    settings_tree,
    upstream_runs_dry,
    world,
)
from tests.e2e.processes import tidegate
from tests.e2e.test_e2e_journal import small_disk
from tests.e2e.test_e2e_process import written
from tests.faults.faulty_world import Stage, stage
from tests.faults.invariants import PHONE, QUERY, WECOM, Watch, check_invariants, edges_told, secrets_in

__all__ = ["small_disk"]


def kept_in(folder: Path) -> dict[str, Any]:
    return {"daemon": {"data_dir": str(folder)}}


async def test_19_told_to_end_under_load_it_ends_in_time_with_0_and_the_rest_is_taken_up_again(
    tmp_path: Path,
) -> None:
    secrets = {"pull": {"phone": PHONE}, "query": {"token": QUERY}}
    async with world() as server:
        tree = settings_tree({LANE: lane_tree(server.url, **secrets)}, **kept_in(tmp_path))
        path = written(tmp_path, merged(tree, {"daemon": {"drain_timeout": 1}}))
        async with tidegate("run", "--config", path) as daemon:
            await eventually(lambda: server.world.ledger.counts["delivered"] > 50)
            server.world.change({"query": {"hang": 1.0}})
            await eventually(lambda: server.world.ledger._queries_open > 20)
            daemon.send(signal.SIGTERM)
            # The hung calls would last for minutes: only the time-out of the drain can end this.
            assert await daemon.ended() == 0
            assert secrets_in({"logs": daemon.everything()}) == []
            left = orjson.loads(await daemon.says(b'"event":"stopped"'))["in_flight"]
        server.world.change({"query": {"hang": 0.0}})
        async with running(tree) as live:
            watch = Watch(live.daemon)
            (started,) = await live.events("started")
            assert not started["detail"]["unclean"]
            assert started["detail"]["recovered"] == left > 0
            assert started["detail"]["dropped"] == 0
            await upstream_runs_dry(server)
            await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
            check_invariants(watch, None, [])
            truth = server.world.truth()
            assert truth["delivered"] == truth["on_time"] == truth["handed_out"]
            assert truth["twice"] == 0
            assert truth["paid_again"] <= live.counter("maybe_paid")


async def drains_and_comes_back(play: Stage, mend: Any) -> None:
    """Nothing new is taken in, what is in hand goes out, and it goes on when there is no trouble any more."""
    await eventually(lambda: "journal" in play.live.holds("pull"), why=play.live.status)
    lane = play.live.daemon.lanes[LANE]
    await eventually(lambda: not lane.pull.pool.working and not lane.in_flight(), why=play.live.status)
    await eventually(lambda: play.told("journal"))
    pulled = play.counter("pulled")
    assert (await play.live.lane())["counters"]["pulled"] == pulled  # and the loop is free to answer
    mend()
    await eventually(lambda: play.told("journal", "recover"), why=lambda: list(play.server.alerts))
    await play.delivers(20)
    truth = await play.all_ended()
    assert truth["delivered"] == truth["handed_out"]
    assert play.live.holds("pull") == set()


async def test_20_a_full_disk_holds_the_pull_drains_is_told_and_goes_on_when_there_is_room(
    small_disk: Path,
) -> None:
    async with stage(settings=kept_in(small_disk), rate=30) as play:
        await play.delivers(20)
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        await drains_and_comes_back(play, filler.unlink)


async def test_21_a_locked_database_is_waited_for_off_the_loop_and_told(tmp_path: Path) -> None:
    async with stage(settings=kept_in(tmp_path), rate=50) as play:
        await play.delivers(20)
        with contextlib.closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await drains_and_comes_back(play, lambda: other.execute("ROLLBACK"))


DAMAGE = b"\xa5" * 50
#: In the middle of the 25th frame: commits follow it, so this is no torn end.
IN_THE_LOG = 32 + 25 * (24 + 4096) + 100


@pytest.mark.parametrize(
    ("file", "begin", "what"),
    [("journal.db", 100, "set_aside"), ("journal.db-wal", IN_THE_LOG, "log_damaged")],
    ids=["database", "log"],
)
async def test_22_a_damaged_database_or_log_is_set_aside_with_its_date_told_and_work_begins_anew(
    tmp_path: Path, file: str, begin: int, what: str
) -> None:
    lived, cut_off = tmp_path / "lived", tmp_path / "cut_off"
    async with world() as server:
        robot = {"wecom": {"key": WECOM, "url": f"{server.url}/cgi-bin/webhook/send"}}
        tree = settings_tree({LANE: lane_tree(server.url)}, alerts=robot)
        async with running(merged(tree, kept_in(lived))) as live:
            await eventually(lambda: live.counter("delivered") > 100)
            await upstream_runs_dry(server)
            await live.all_ended(server)
            shutil.copytree(lived, cut_off)
        # A clean end leaves no log; a power cut leaves one that would hide the damage of the database.
        folder = lived if file == "journal.db" else cut_off
        with (folder / file).open("r+b") as damaged:
            damaged.seek(begin)
            damaged.write(DAMAGE)
        server.world.change({"rate": 100})
        async with running(merged(tree, kept_in(folder))) as live:
            watch = Watch(live.daemon)
            await eventually(lambda: live.counter("delivered") > 50)
            await eventually(lambda: (f"journal_{what}", "fire") in edges_told(server.alerts))
            said = [event["detail"] for event in await live.events("journal")]
            assert [detail["what"] for detail in said] == [what]
            kept = folder / said[0]["file"]
            assert kept.name.startswith(f"{file}.corrupt-20")
            assert DAMAGE in kept.read_bytes()
            await upstream_runs_dry(server)

            def all_delivered() -> bool:
                """Not only what is in flight: a pull under way may bring the last that was handed out."""
                truth = server.world.truth()
                return bool(truth["delivered"] == truth["handed_out"])

            await eventually(all_delivered, why=server.world.truth)
            await eventually(lambda: not live.daemon.lanes[LANE].in_flight())
            check_invariants(watch, None, server.alerts)
