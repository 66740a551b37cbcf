"""`trace`, `report` and `db` against a real journal, with a daemon's endpoint before it and without."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import main
from pipeline.cli.table import width
from pipeline.clock import SystemClock
from pipeline.config import JournalConfig, WebConfig
from pipeline.events import Bus
from pipeline.journal.journal import Journal
from pipeline.journal.limits import Limits
from pipeline.journal.silent import SilentJournal
from pipeline.ticket import Answer, Outcome, Ticket, Verdict
from pipeline.web.app import WebServer

LANE = "shopee"
#: Noon of Shanghai's 1 March.
NOON = datetime(2026, 3, 1, 4, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TIDEGATE_URL", "TIDEGATE_TOKEN", "TIDEGATE_CONFIG", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pipeline.cli.settings.SYSTEM_CONFIG", tmp_path / "no-system-config.toml")
    monkeypatch.chdir(tmp_path)


def configure(port: int = 1, lang: str = "en", more: str = "", **lanes: str) -> None:
    sections = [f'[daemon]\nlang = "{lang}"\n[web]\nport = {port}\n{more}\n']
    for lane, zone in (lanes or {LANE: "Asia/Shanghai"}).items():
        sections.append(f'[lanes.{lane}]\nsource = "sim"\nprovider = "sim"\nsink = "sim"\n')
        sections.append(f'[lanes.{lane}.pull]\ntimezone = "{zone}"\n')
    Path("config.toml").write_text("".join(sections), encoding="utf-8")


def tidegate(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


async def typed(*arguments: str) -> Result:
    """In a thread of its own: the daemon that it talks to is in this one."""
    return await asyncio.to_thread(tidegate, *arguments)


@asynccontextmanager
async def opened(**limits: float) -> AsyncIterator[Journal]:
    journal = Journal(Path("data", "journal.db"), JournalConfig(), SystemClock(), Bus(), Limits(**limits))
    await journal.open()
    try:
        yield journal
    finally:
        await journal.close()


@asynccontextmanager
async def served(journal: Journal, lang: str = "en") -> AsyncIterator[None]:
    """The control endpoint of a daemon that has nothing but a journal, at the configured address."""
    clock = SystemClock()
    daemon = SimpleNamespace(
        lanes={}, bus=Bus(), clock=clock, journal=journal, started_at=clock.monotonic(), ready=True
    )
    server = WebServer(daemon, WebConfig(port=0))
    await server.start()
    configure(server.port, lang)
    try:
        yield
    finally:
        await server.close()


def delivered(journal: Journal, trace: str, key: str = "7:8:sg") -> None:
    ticket = Ticket(key, trace, None, token="canary", created=SystemClock().now() - 1.5)
    journal.pulled(LANE, ticket)
    for verdict in (Verdict.PROCESSING, Verdict.ANSWERED):
        ticket.queries += 1
        journal.asking(ticket)
        journal.answered(ticket, Answer(verdict, b"{}"))
    journal.calling(ticket)
    ticket.callbacks += 1
    ticket.outcome = Outcome.DELIVERED
    journal.ended(LANE, ticket, "callback")


def words(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


# -- trace ---------------------------------------------------------------------------------------------


async def test_a_trace_is_a_table_of_its_steps_in_order() -> None:
    async with opened() as journal, served(journal):
        delivered(journal, "t1")
        result = await typed("trace", "t1")
    assert result.exit_code == 0
    heading, columns, *rows = result.stdout.splitlines()
    assert words(heading)[:3] == ["t1", LANE, "7:8:sg"]
    assert words(columns) == ["time", "stage", "try", "what", "age"]
    assert [words(row)[1:4] for row in rows] == [
        ["pull", "-", "queued"],
        ["query", "1", "query sent"],
        ["query", "1", "processing"],
        ["query", "2", "query sent"],
        ["query", "2", "answered"],
        ["callback", "1", "callback sent"],
        ["callback", "1", "delivered"],
    ]
    times = [words(row)[0] for row in rows]
    assert times == sorted(times)
    assert all(datetime.strptime(time, "%H:%M:%S.%f") for time in times)  # noqa: DTZ007
    assert all(words(row)[4].endswith("s") for row in rows)


async def test_a_trace_in_chinese_lines_up() -> None:
    async with opened() as journal, served(journal, "zh"):
        delivered(journal, "t1")
        lines = (await typed("trace", "t1")).stdout.splitlines()
    places = [
        width(line[: line.index(mark)])
        for line, mark in zip(lines[1:4] + lines[-1:], ("经过", "入队", "发出查询", "已送达"), strict=True)
    ]
    assert len(set(places)) == 1


async def test_an_item_has_a_table_for_each_of_its_tickets() -> None:
    async with opened() as journal, served(journal):
        for trace, key in (("t1", "7:8:sg"), ("t2", "7:8:my"), ("t3", "7:9:sg")):
            delivered(journal, trace, key)
        result = await typed("trace", "--shop", "7", "--item", "8")
    headings = [line for line in result.stdout.splitlines() if line and not line.startswith(" ")]
    assert [words(line)[0] for line in headings] == ["t1", "t2"]


async def test_as_json_a_trace_is_what_the_daemon_said() -> None:
    async with opened() as journal, served(journal):
        delivered(journal, "a/b 追踪")
        found = json.loads((await typed("trace", "a/b 追踪", "--json")).stdout)
    assert found["trace_id"] == "a/b 追踪"
    assert [step["what"] for step in found["steps"]][-1] == "delivered"


async def test_a_trace_that_is_not_kept_ends_with_one_and_says_so() -> None:
    async with opened() as journal, served(journal):
        result = await typed("trace", "nobody")
    assert result.exit_code == 1
    assert "nothing is kept" in result.stderr


async def test_a_daemon_without_a_journal_says_so() -> None:
    async with served(SilentJournal()):
        result = await typed("trace", "t1")
    assert result.exit_code == 1
    assert "journal is off" in result.stderr


async def test_without_a_daemon_the_trace_is_read_from_the_file_and_said_to_be() -> None:
    configure()
    async with opened() as journal:
        delivered(journal, "t1")
    for arguments in (("t1",), ("--shop", "7", "--item", "8")):
        result = tidegate("trace", *arguments)
        assert result.exit_code == 0
        assert "delivered" in result.stdout
        assert "journal.db" in result.stderr
    assert tidegate("trace", "nobody").exit_code == 1


async def test_without_a_daemon_and_a_file_or_at_another_address_it_ends_with_three() -> None:
    configure()
    assert tidegate("trace", "t1").exit_code == 3
    async with opened() as journal:
        delivered(journal, "t1")
    assert tidegate("trace", "t1", "--url", "http://127.0.0.1:2").exit_code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("",),
        ("t1", "--shop", "7"),
        ("--shop", "7"),
        ("--item", "8"),
        ("--shop", "", "--item", "8"),
        ("\udcff",),
    ],
)
def test_what_names_no_ticket_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert tidegate("trace", *arguments).exit_code == 2


async def test_a_tickets_name_cannot_steer_the_terminal() -> None:
    configure()
    async with opened() as journal:
        delivered(journal, "\x1b[2Jx", "7:8:\x1b]0;y\x07")
    result = tidegate("trace", "--shop", "7", "--item", "8")
    assert "x" in result.stdout
    assert "\x1b" not in result.stdout


# -- report --------------------------------------------------------------------------------------------


async def a_day(journal: Journal, lane: str = LANE, at: float = NOON) -> None:
    counters = {"delivered": 10, "rejected": 2, "answered": 9, "offline": 3, "query_stale": 1, "restart": 4}
    journal.minute(lane, at, {"counters": counters | {"spent": 6.0}, "holds": {"credit": 20}})
    journal.minute(lane, at + 60, {"counters": {"delivered": 5, "spent": 1.5}, "holds": {"credit": 60}})
    await journal.flush()


async def test_a_days_report_shows_deliveries_drops_money_and_holds() -> None:
    configure()
    async with opened() as journal:
        await a_day(journal)
    result = tidegate("report", "--day", "2026-03-01")
    assert result.exit_code == 0
    assert [words(line) for line in result.stdout.splitlines() if line] == [
        [LANE, "2026-03-01 (Asia/Shanghai)"],
        ["delivered", "15"],
        ["rejected", "2"],
        ["dropped", "5"],
        ["too old after a restart", "4"],
        ["too old to query", "1"],
        ["paid queries", "12"],
        ["spent", "7.5"],
        ["cost per delivery", "0.5"],
        ["longest holds", "from", "held"],
        ["out of credit", "12:00", "1 min 20 s"],
    ]


async def test_as_json_the_report_has_plain_numbers() -> None:
    configure()
    async with opened() as journal:
        await a_day(journal)
    assert json.loads(tidegate("report", "--day", "2026-03-01", "--json").stdout) == {
        "lanes": {
            LANE: {
                "day": "2026-03-01",
                "timezone": "Asia/Shanghai",
                "delivered": 15,
                "rejected": 2,
                "dropped": {"restart": 4, "query_stale": 1},
                "paid": 12,
                "spent": 7.5,
                "cost_per_delivery": 0.5,
                "longest_holds": [{"reason": "credit", "began": int(NOON), "seconds": 80}],
            }
        }
    }


async def test_the_report_is_in_chinese_where_the_daemon_is() -> None:
    configure(lang="zh")
    async with opened() as journal:
        await a_day(journal)
    output = tidegate("report", "--day", "2026-03-01").stdout
    for part in ("已送达          15\n", "单均花费", "重启后已过期", "1 分 20 秒"):
        assert part in output


async def test_the_report_reads_beside_a_daemon_that_writes() -> None:
    configure()
    async with opened() as journal:
        await a_day(journal)
        result = await typed("report", "--day", "2026-03-01")
        delivered(journal, "t1")
        assert await journal.trace("t1")
    assert "15" in result.stdout


async def test_a_day_is_each_lanes_own_and_one_that_is_configured_no_more_goes_by_the_first() -> None:
    configure(east="Asia/Shanghai", west="America/New_York")
    evening = NOON + 14 * 3600  # 2 March in Shanghai, 1 March in New York
    async with opened() as journal:
        for lane in ("east", "west", "gone"):
            await a_day(journal, lane, evening)
    found = json.loads(tidegate("report", "--day", "2026-03-01", "--json").stdout)["lanes"]
    assert {lane: told["timezone"] for lane, told in found.items()} == {"west": "America/New_York"}
    found = json.loads(tidegate("report", "--day", "2026-03-02", "--json").stdout)["lanes"]
    assert set(found) == {"east", "gone"}


async def test_without_a_day_it_is_today_where_the_lane_is() -> None:
    zones = {"east": timedelta(hours=12), "west": timedelta(hours=-12)}
    configure(east="Etc/GMT-12", west="Etc/GMT+12")
    before = datetime.now(UTC)
    async with opened() as journal:
        for lane in zones:
            await a_day(journal, lane, SystemClock().now() - 60)
    lines = tidegate("report").stdout.splitlines()
    for lane, offset in zones.items():
        said = next(words(line)[1] for line in lines if line.startswith(lane))
        assert said.split()[0] in {f"{moment + offset:%Y-%m-%d}" for moment in (before, datetime.now(UTC))}


async def test_a_lane_of_which_nothing_was_recorded_says_so() -> None:
    configure()
    async with opened():
        pass
    result = tidegate("report", "--day", "2020-02-29")
    assert result.exit_code == 0
    assert "nothing was recorded" in result.stdout
    assert json.loads(tidegate("report", "--day", "2020-02-29", "--json").stdout) == {"lanes": {}}


@pytest.mark.parametrize("day", ["yesterday", "2026-02-30", "0001-01-01", "9999-12-31"])
def test_a_day_that_is_none_is_wrong_usage(day: str) -> None:
    configure()
    assert tidegate("report", "--day", day).exit_code == 2


# -- db ------------------------------------------------------------------------------------------------


async def test_check_backup_and_vacuum_work_while_the_daemon_runs(tmp_path: Path) -> None:
    configure()
    async with opened(prune_every=0.01) as journal:
        delivered(journal, "t1")
        await journal.flush()
        results = [await typed("db", *words) for words in (("check",), ("backup", "copy.db"), ("vacuum",))]
        delivered(journal, "t2")
        assert await journal.trace("t2")
    assert [result.exit_code for result in results] == [0, 0, 0]
    sound, copied, vacuumed = (result.stdout for result in results)
    assert "nothing is wrong" in sound
    assert "journal.key" in copied
    assert "→" in vacuumed
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT trace_id FROM ticket").fetchall() == [("t1",)]


async def test_check_backup_and_vacuum_work_without_a_daemon_and_speak_json(tmp_path: Path) -> None:
    configure()
    async with opened() as journal:
        delivered(journal, "t1")
    told = [
        json.loads(tidegate("db", *words, "--json").stdout)
        for words in (("check",), ("backup", "copy.db"), ("vacuum",))
    ]
    assert told[0]["problems"] == []
    assert told[1]["bytes"] == (tmp_path / "copy.db").stat().st_size
    assert told[2]["bytes_after"] == (tmp_path / "data" / "journal.db").stat().st_size
    assert all(Path(each["path"]).name == "journal.db" for each in told)


def test_damage_ends_with_one_and_is_named() -> None:
    configure()
    Path("data").mkdir()
    Path("data/journal.db").write_bytes(b"this is not a database" * 1000)
    result = tidegate("db", "check")
    assert result.exit_code == 1
    assert "damaged" in result.stdout
    assert "not a database" in result.stdout
    for arguments in (("report",), ("trace", "t1"), ("db", "backup", "copy.db")):
        result = tidegate(*arguments)
        assert result.exit_code == 1
        assert "corrupt" in result.stderr
    assert not Path("copy.db").exists()


async def test_a_backup_overwrites_nothing_and_needs_a_folder(tmp_path: Path) -> None:
    configure()
    async with opened():
        pass
    mine = tmp_path / "mine.txt"
    mine.write_text("precious")
    result = tidegate("db", "backup", "mine.txt")
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert mine.read_text() == "precious"
    result = tidegate("db", "backup", "nowhere/copy.db")
    assert result.exit_code == 1
    assert "no such folder" in result.stderr
    result = tidegate("db", "backup", "x" * 300)
    assert result.stderr == f"Error: journal: {'x' * 300}: file name too long\n"


def test_a_journal_that_is_not_there_ends_with_one_and_names_its_place(tmp_path: Path) -> None:
    configure()
    for arguments in (("report",), ("db", "check"), ("db", "backup", "copy.db"), ("db", "vacuum")):
        result = tidegate(*arguments)
        assert result.exit_code == 1
        assert str(tmp_path / "data" / "journal.db") in result.stderr
    assert not Path("data").exists()
    configure(more='[journal]\nlevel = "off"')
    assert "journal is off" in tidegate("report").stderr


def test_a_place_that_cannot_be_looked_at_is_one_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may look anywhere, so that here a name that no disk takes stands for a folder of another user."""
    place = "x" * 300
    configure()
    monkeypatch.setenv("TIDEGATE_DAEMON__DATA_DIR", place)
    for arguments in (("report",), ("db", "check"), ("db", "backup", "copy.db"), ("db", "vacuum")):
        result = tidegate(*arguments)
        assert result.exit_code == 1
        assert result.stderr == f"Error: journal: {tmp_path / place / 'journal.db'}: file name too long\n"
    assert tidegate("trace", "any").exit_code == 3


async def test_a_journal_of_a_newer_program_or_a_bad_configuration_ends_with_78() -> None:
    configure()
    async with opened():
        pass
    with closing(sqlite3.connect("data/journal.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    result = tidegate("report")
    assert result.exit_code == 78
    assert "99" in result.stderr
    configure(more="[dmaeon]\nx = 1")
    for arguments in (("report",), ("db", "check")):
        assert tidegate(*arguments).exit_code == 78
    assert tidegate("trace", "t1", "--config", "config.toml").exit_code == 78
