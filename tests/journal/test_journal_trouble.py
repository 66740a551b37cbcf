import asyncio
import contextlib
import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from journal_makers import LANE, PAGE, PATIENCE, World, asked, delivered, ended, flushed, pulled, recovered

from pipeline.errors import ConfigError, JournalFault
from pipeline.journal.journal import Journal
from pipeline.journal.trouble import Corrupt, in_words
from pipeline.ticket import Ticket

LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def on_writer(journal: Journal, text: str) -> None:
    await journal._database.write(lambda connection: connection.execute(text).fetchall())


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return filler


@contextlib.contextmanager
def locker(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", LOCKER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def spoil(path: Path, begin: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(b"\xa5" * length)


async def stuck_then_freed(world: World, journal: Journal, tickets: list[Ticket], trouble: str) -> None:
    """The trouble is told, everything waits in memory, and later rows wait behind it."""
    pulled(journal, *tickets)
    assert await world.next_trouble() == trouble
    assert journal.trouble == trouble
    later = world.ticket("later")
    delivered(journal, later)
    assert journal.buffered[0] >= len(tickets)


async def all_written(world: World, journal: Journal, tickets: list[Ticket]) -> None:
    await world.until_trouble(lambda trouble: trouble is None)
    await flushed(journal)
    assert journal.trouble is None
    assert journal.lost == 0
    assert journal.buffered == (0, 0)
    found = {trace for (trace,) in world.rows("SELECT trace_id FROM ticket")}
    assert found >= {ticket.trace_id for ticket in tickets} | {"later"}
    assert [event.detail["what"] for event in reversed(world.bus.recent())][-1] == "recovered"


def many(world: World, number: int = 2000) -> list[Ticket]:
    return [world.ticket(f"t{count}") for count in range(number)]


async def test_a_full_database_is_told_and_nothing_is_lost_once_there_is_room(world: World):
    async with world.opened() as journal:
        await flushed(journal)
        await on_writer(journal, "PRAGMA max_page_count = 20")
        tickets = many(world)
        await stuck_then_freed(world, journal, tickets, "disk full")
        await on_writer(journal, "PRAGMA max_page_count = 100000")
        await all_written(world, journal, tickets)


async def test_a_full_disk_is_told_and_nothing_is_lost_once_there_is_room(small_disk: Path):
    world = World(small_disk / "journal.db")
    async with world.opened() as journal:
        delivered(journal, world.ticket("before"))
        await flushed(journal)
        filler = fill(small_disk)
        tickets = many(world, 500)
        await stuck_then_freed(world, journal, tickets, "disk full")
        filler.unlink()
        await all_written(world, journal, tickets)


async def test_a_lock_of_another_process_is_waited_for_off_the_loop_and_told(world: World):
    async with world.opened() as journal:
        await flushed(journal)
        with locker(world.path) as process:
            tickets = many(world, 100)
            await stuck_then_freed(world, journal, tickets, "locked by another process")
            assert await journal.history(LANE, 0, 1) == []  # reading goes on
            assert process.stdin is not None
            process.stdin.close()
            await all_written(world, journal, tickets)


async def test_a_database_that_has_become_read_only_is_told_and_written_when_it_is_not(world: World):
    async with world.opened() as journal:
        await flushed(journal)
        await on_writer(journal, "PRAGMA query_only = ON")
        tickets = many(world, 100)
        await stuck_then_freed(world, journal, tickets, "read-only")
        await on_writer(journal, "PRAGMA query_only = OFF")
        await all_written(world, journal, tickets)


async def test_a_read_only_disk_at_the_start_is_one_clear_line(small_disk: Path):
    world = World(small_disk / "journal.db")
    async with world.opened():
        pass
    make_read_only(small_disk)
    with pytest.raises(JournalFault, match=r"journal\.db: read-only"):
        await world.journal().open()


async def test_closing_in_trouble_is_bounded_says_what_is_lost_and_is_no_clean_end(world: World):
    journal = world.journal(close_seconds=0.05)
    await journal.open()
    await flushed(journal)
    await on_writer(journal, "PRAGMA query_only = ON")
    pulled(journal, *many(world, 10))
    await journal.close()
    [event] = world.said("rows_lost")
    assert event.detail["count"] == 10
    async with world.opened() as journal:
        assert not (await recovered(journal, world)).clean


async def test_a_bug_while_writing_costs_its_group_and_not_the_writer(world: World, monkeypatch):
    async with world.opened() as journal:
        await flushed(journal)
        with monkeypatch.context() as patch:
            patch.setattr("pipeline.journal.group.packed", lambda _: 1 / 0)
            pulled(journal, world.ticket("t1"))
            await flushed(journal)
        pulled(journal, world.ticket("t2"))
        await flushed(journal)
        assert world.rows("SELECT trace_id FROM ticket") == [("t2",)]
        assert journal.lost == 1


@pytest.mark.parametrize("begin", [0, 4096], ids=["header", "first table"])
async def test_a_corrupt_file_is_set_aside_with_its_date_at_the_start_and_a_new_one_begun(
    world: World, begin: int
):
    async with world.opened() as journal:
        delivered(journal, world.ticket("old"))
    spoil(world.path, begin, 2048)
    spoiled = world.path.read_bytes()
    async with world.opened() as journal:
        [event] = world.said("set_aside")
        kept = world.path.with_name(event.detail["file"])
        assert kept.name.startswith("journal.db.corrupt-20")
        assert kept.read_bytes() == spoiled
        assert event.level == "error"
        assert await journal.trace("old") == []
        delivered(journal, world.ticket("new"))
        assert await journal.trace("new")


async def test_two_corrupt_files_in_one_second_do_not_overwrite_each_other(world: World, monkeypatch):
    monkeypatch.setattr("pipeline.journal.database.Database._date", lambda self: "20260301-120000")
    for _ in range(3):
        async with world.opened():
            pass
        spoil(world.path, 0, 100)
    async with world.opened():
        pass
    assert len(list(world.path.parent.glob("journal.db.corrupt-20260301-120000*"))) == 3


async def test_a_file_that_becomes_corrupt_is_set_aside_and_what_is_under_way_is_written_again(world: World):
    async with world.opened() as journal:
        waiting, answered, spilled = (world.ticket(name) for name in ("waiting", "answered", "spilled"))
        pulled(journal, waiting, answered, spilled)
        journal.keep(answered, PAGE)
        gone = journal.keep(spilled, type(PAGE)(PAGE.verdict, b"gone"))
        await flushed(journal)
        assert gone is not None
        assert gone.let_go()
        await on_writer(journal, "PRAGMA wal_checkpoint(TRUNCATE)")
        await on_writer(journal, "PRAGMA shrink_memory")
        spoil(world.path, 4096, world.path.stat().st_size - 4096)
        pulled(journal, world.ticket("later"))
        assert await world.next_trouble() == "corrupt"
        assert await world.next_trouble() is None
        assert len(world.said("set_aside")) == 1
        await flushed(journal)
        assert await journal.fetch(gone) is None
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert [one.ticket.trace_id for one in found.unanswered] == ["waiting", "spilled", "later"]
        [again] = found.undelivered
        assert await journal.fetch(again.kept) == PAGE


async def test_damage_that_upkeep_meets_first_also_leads_to_a_new_file(world: World):
    async with world.opened(prune_every=3600) as journal:
        pulled(journal, world.ticket("under way"))
        await flushed(journal)
        damage, opened = Corrupt("found while pruning"), journal._database.generation
        pulled(journal, world.ticket("meanwhile"))
        await asyncio.gather(*(journal.upkeep.on_damage(damage, opened) for _ in range(2)), flushed(journal))
        await flushed(journal)
        assert world.rows("SELECT trace_id FROM ticket") == [("under way",), ("meanwhile",)]
        assert [event.detail["why"] for event in world.said("set_aside")] == ["found while pruning"]


async def test_damage_that_recovery_meets_first_costs_what_was_written_and_not_the_lane(world: World):
    async with world.opened() as journal:
        pulled(journal, *many(world))
    size = world.path.stat().st_size
    spoil(world.path, size // 3, size // 3)
    async with world.opened(check_max=0) as journal:  # as for a file too large to be checked
        for lane in (LANE, "other"):
            found = await recovered(journal, world, lane)
            assert found.unanswered == []
        assert len(world.said("set_aside")) == 1
        delivered(journal, world.ticket("new"))
        assert await journal.trace("new")


async def test_damage_that_a_trace_meets_is_a_fault_once_and_then_a_new_file(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    def finds_damage(*_: object, **__: object) -> None:
        raise Corrupt("found by a trace")

    async with world.opened(prune_every=3600) as journal:
        pulled(journal, world.ticket("under way"))
        await flushed(journal)
        with monkeypatch.context() as patch:
            patch.setattr("pipeline.journal.traces.by_trace", finds_damage)
            with pytest.raises(JournalFault, match="corrupt"):
                await journal.trace("t1")
        assert [step.what for step in await journal.trace("under way")] == ["queued"]
        assert [event.detail["why"] for event in world.said("set_aside")] == ["found by a trace"]


@pytest.mark.parametrize("taken", ["journal.db", "journal.*", "*"])
async def test_a_file_that_is_taken_away_is_missed_told_and_begun_anew_with_what_is_under_way(
    world: World, taken: str
):
    async with world.opened("answers", prune_every=0.02) as journal:
        waiting, answered = world.ticket("waiting"), world.ticket("answered")
        pulled(journal, waiting, answered)
        asked(journal, answered, PAGE)
        await flushed(journal)
        for file in world.path.parent.glob(taken):
            file.unlink()
        if taken == "*":
            world.path.parent.rmdir()
        missed = asyncio.Event()
        world.bus.subscribe(lambda event: missed.set() if event.detail.get("what") == "gone" else None)
        async with asyncio.timeout(PATIENCE):
            await missed.wait()
        pulled(journal, world.ticket("later"))
        await flushed(journal)
        with pytest.raises(ConfigError, match="in use by another tidegate"):
            await world.journal().open()
        assert journal.lost == 0
        assert len(world.said("gone")) == 1
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert [one.ticket.token for one in found.unanswered] == ["secret-of-waiting", "secret-of-later"]
        [again] = found.undelivered
        assert await journal.fetch(again.kept) == PAGE


async def test_a_log_without_its_database_is_set_aside_at_the_start(world: World, tmp_path: Path):
    async with world.opened() as journal:
        pulled(journal, world.ticket())
        await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    sudden.path.unlink()
    async with sudden.opened() as journal:
        [event] = sudden.said("log_damaged")
        assert sudden.path.with_name(event.detail["file"]).stat().st_size > 0
        assert (await recovered(journal, sudden)).unanswered == []
        delivered(journal, sudden.ticket("new"))
        assert await journal.trace("new")


async def test_a_damaged_log_is_copied_aside_and_said_and_what_comes_before_the_damage_is_kept(
    world: World, tmp_path: Path
):
    async with world.opened() as journal:
        for number in range(20):
            delivered(journal, world.ticket(f"t{number}"))
            await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    log = Path(f"{sudden.path}-wal")
    spoil(log, 32 + 4120 * 25 + 100, 50)
    spoiled = await asyncio.to_thread(log.read_bytes)
    async with sudden.opened() as journal:
        [event] = sudden.said("log_damaged")
        assert sudden.path.with_name(event.detail["file"]).read_bytes() == spoiled
        assert event.detail["file"].startswith("journal.db-wal.corrupt-20")
        found = await recovered(journal, sudden)
        assert not found.clean
        assert await journal.trace("t0")
        assert not await journal.trace("t19")
        delivered(journal, sudden.ticket("new"))
        assert await journal.trace("new")


async def test_a_log_whose_beginning_is_damaged_is_said_too(world: World, tmp_path: Path):
    async with world.opened() as journal:
        delivered(journal, world.ticket())
        await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    spoil(Path(f"{sudden.path}-wal"), 0, 16)
    async with sudden.opened() as journal:
        assert len(sudden.said("log_damaged")) == 1
        delivered(journal, sudden.ticket("new"))
        assert await journal.trace("new")


async def test_the_torn_end_of_a_sudden_stop_is_no_damage(world: World, tmp_path: Path):
    async with world.opened() as journal:
        for number in range(5):
            delivered(journal, world.ticket(f"t{number}"))
            await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    append(Path(f"{sudden.path}-wal"), bytes(5000))
    async with sudden.opened() as journal:
        assert sudden.bus.recent() == []
        assert await journal.trace("t4")


async def test_a_sound_start_says_nothing(world: World, tmp_path: Path):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
        ended(journal, ticket)
    async with world.opened(), sudden.opened():
        assert world.bus.recent() == sudden.bus.recent() == []


def test_troubles_have_names_that_an_operator_knows():
    assert in_words(OSError(errno.ENOSPC, "No space left on device")) == "disk full"
    assert in_words(OSError(errno.EIO, "Input/output error")) == "input/output error"
    assert in_words(Corrupt("page 3")) == "corrupt"
    assert in_words(sqlite3.OperationalError("something else")) == "something else"
