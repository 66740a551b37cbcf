import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from journal_makers import World, delivered, flushed

from pipeline.errors import ConfigError, JournalFault
from pipeline.journal.maintenance import backup, check, vacuum

DAY = 86_400


def fill(world: World, number: int, journal) -> None:
    for count in range(number):
        delivered(journal, world.ticket(f"t{count}"))


async def test_check_finds_nothing_wrong_while_the_daemon_writes(world: World):
    async with world.opened() as journal:
        fill(world, 200, journal)
        found = asyncio.create_task(asyncio.to_thread(check, world.path))
        fill(world, 200, journal)
        assert await found == []


async def test_check_names_what_is_wrong(world: World):
    async with world.opened() as journal:
        fill(world, 500, journal)
    with world.path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xa5" * 4096 * 4)
    assert check(world.path) != []
    world.path.write_bytes(b"this is not a database" * 1000)
    assert check(world.path) == ["file is not a database"]


async def test_a_backup_taken_while_the_daemon_writes_is_whole_and_private(world: World, tmp_path: Path):
    to = tmp_path / "copy.db"
    async with world.opened() as journal:
        fill(world, 300, journal)
        await flushed(journal)
        copying = asyncio.create_task(asyncio.to_thread(backup, world.path, to))
        fill(world, 300, journal)
        assert await copying == to.stat().st_size
    assert check(to) == []
    copy = sqlite3.connect(to)
    assert copy.execute("SELECT count(*) FROM ticket WHERE outcome = 'delivered'").fetchone()[0] >= 300
    copy.close()
    assert to.stat().st_mode & 0o777 == 0o600


async def test_a_backup_overwrites_nothing(world: World, tmp_path: Path):
    async with world.opened():
        pass
    to = tmp_path / "mine.txt"
    to.write_text("precious")
    with pytest.raises(JournalFault, match="exists already"):
        backup(world.path, to)
    assert to.read_text() == "precious"


async def test_vacuum_gives_space_back_when_no_daemon_runs(world: World):
    async with world.opened() as journal:
        fill(world, 3000, journal)
        await flushed(journal)
        world.clock.ahead = 4 * DAY
        while (await journal.upkeep.prune_once()).more:
            pass
    result = await asyncio.to_thread(vacuum, world.path)
    assert result.bytes_after < result.bytes_before / 4
    assert check(world.path) == []


async def test_vacuum_touches_no_journal_of_a_newer_program(world: World):
    async with world.opened():
        pass
    with closing(sqlite3.connect(world.path)) as connection:
        connection.execute("PRAGMA user_version = 999")
    before = world.path.read_bytes()
    with pytest.raises(ConfigError, match="schema version 999"):
        await asyncio.to_thread(vacuum, world.path)
    assert world.path.read_bytes() == before


async def test_vacuum_is_done_by_the_running_daemon_when_asked(world: World):
    async with world.opened(prune_every=0.01) as journal:
        fill(world, 3000, journal)
        await flushed(journal)
        await journal._database.write(
            lambda connection: connection.execute("PRAGMA wal_checkpoint").fetchall()
        )
        world.clock.ahead = 4 * DAY
        while await journal.trace("t2999"):
            pass
        result = await asyncio.to_thread(vacuum, world.path)
        assert result.bytes_after < result.bytes_before / 4
        delivered(journal, world.ticket("after"))
        assert await journal.trace("after")
    assert check(world.path) == []


async def test_a_vacuum_that_the_daemon_does_not_get_to_is_given_up_and_leaves_no_request(world: World):
    async with world.opened(prune_every=3600):
        with pytest.raises(JournalFault, match="did not finish"):
            await asyncio.to_thread(vacuum, world.path, 0.1)
    assert not list(world.path.parent.glob("*.vacuum"))


def test_a_file_that_is_not_there_is_said_to_be_missing(world: World, tmp_path: Path):
    for work in (check, vacuum, lambda path: backup(path, tmp_path / "copy.db")):
        with pytest.raises(JournalFault, match=r"journal\.db: there is no such file"):
            work(world.path)
