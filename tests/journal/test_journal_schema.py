import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from journal_makers import World, delivered, pulled, recovered

from pipeline.errors import ConfigError
from pipeline.journal import schema
from pipeline.journal.sql import open_inbox, statements


def database(path: Path, version: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.migrate(connection, path.name, up_to=version)


def shape(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()


def test_versions_are_numbered_from_one_without_a_gap():
    assert list(schema.migrations()) == list(range(1, schema.newest() + 1))


@pytest.mark.parametrize("version", range(schema.newest() + 1))
async def test_a_database_of_any_earlier_version_is_brought_up_to_this_one(
    world: World, tmp_path: Path, version: int
):
    database(world.path, version)
    async with world.opened() as journal:
        delivered(journal, world.ticket())
        journal.minute("shopee", 0, {})
    database(tmp_path / "new.db", schema.newest())
    assert shape(world.path) == shape(tmp_path / "new.db")
    assert world.rows("PRAGMA user_version") == [(schema.newest(),)]


async def test_rows_of_version_1_survive_the_way_up(world: World):
    database(world.path, 1)
    with closing(sqlite3.connect(world.path)) as connection, connection:
        created = world.clock.now()
        connection.execute("INSERT INTO run VALUES (1, 1.0, 2.0)")
        connection.execute(
            "INSERT INTO ticket"
            " (id, lane, trace_id, key, trace_crc, item_crc, created, priority, pulled, entry)"
            " VALUES (1, 'shopee', 'old', '1:2:sg', 0, 0, ?, 0, ?, 'queued')",
            (created, created),
        )
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert found.clean
        assert [one.ticket.trace_id for one in found.unanswered] == ["old"]
        pulled(journal, world.ticket("new"))


async def test_a_newer_schema_is_refused_in_one_line_and_left_alone(world: World):
    database(world.path, schema.newest())
    with closing(sqlite3.connect(world.path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = world.path.read_bytes()
    with pytest.raises(ConfigError) as raised:
        await world.journal().open()
    assert "journal.db has schema version 99" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert world.path.read_bytes() == before
    assert [file.name for file in world.path.parent.glob("*corrupt*")] == []


def test_a_migration_that_fails_leaves_the_version_before_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(
        schema,
        "migrations",
        lambda: {1: "CREATE TABLE a (x);", 2: "CREATE TABLE b (x);\nCREATE TABLE a (y);"},
    )
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError):
            schema.migrate(connection, "x.db")
        assert schema.version(connection) == 1
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("a",)]


def test_every_statement_is_one_that_the_newest_schema_understands(tmp_path: Path):
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.migrate(connection, "memory")
        open_inbox(connection)
        for text in statements().values():
            values = defaultdict(lambda: None) if re.search(r":\w", text) else [1] * text.count("?")
            connection.execute(f"EXPLAIN {text}", values)


async def test_a_second_daemon_on_the_same_journal_is_refused(world: World):
    async with world.opened():
        with pytest.raises(ConfigError, match="in use by another tidegate"):
            await world.journal().open()
    async with world.opened():
        pass
