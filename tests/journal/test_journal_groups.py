import asyncio
import gc
import os
import sys

import pytest
from journal_makers import LANE, PAGE, PATIENCE, World, asked, delivered, ended, flushed, pulled

from pipeline.config import JournalConfig
from pipeline.events import Bus
from pipeline.journal import breath
from pipeline.journal.silent import SilentJournal, make_journal
from pipeline.ticket import Answer, Outcome, Verdict


async def test_a_row_goes_to_disk_by_itself_when_its_group_has_waited_long_enough(world: World):
    async with world.opened(group_seconds=0.01) as journal:
        pulled(journal, world.ticket())
        async with asyncio.timeout(PATIENCE):
            await journal.flush(hurry=False)
        assert world.rows("SELECT trace_id FROM ticket") == [("t1",)]


async def test_a_full_group_does_not_wait_for_the_time(world: World):
    async with world.opened(group_seconds=3600, group_rows=50) as journal:
        pulled(journal, *(world.ticket(f"t{number}") for number in range(49)))
        async with asyncio.timeout(PATIENCE):
            await journal.flush(hurry=False)
        assert world.rows("SELECT count(*) FROM ticket") == [(49,)]  # the run's own row is the fiftieth


async def test_a_group_with_enough_bytes_does_not_wait_for_the_time(world: World):
    async with world.opened(group_seconds=3600, group_bytes=len(PAGE.body)) as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        kept = journal.keep(ticket, PAGE)
        assert kept is not None
        async with asyncio.timeout(PATIENCE):
            await kept.wait_saved()


async def test_flush_makes_durable_what_was_said_before_it_without_waiting_for_the_time(world: World):
    async with world.opened(group_seconds=3600) as journal:
        delivered(journal, world.ticket())
        await flushed(journal)
        assert world.rows("SELECT outcome FROM ticket") == [("delivered",)]
        told = world.rows("SELECT value ->> 2 FROM trail, json_each(steps) ORDER BY at")
        assert told == [("asking",), ("answered",), ("calling",)]
        assert journal.buffered == (0, 0)


async def test_flush_of_nothing_returns_at_once(world: World):
    async with world.opened() as journal:
        await flushed(journal)
        await flushed(journal)


async def test_a_group_is_one_hop_to_the_database_whatever_its_size(world: World, monkeypatch):
    async with world.opened(group_seconds=3600, group_rows=10_000) as journal:
        await flushed(journal)
        hops = []
        write = journal._database.write
        monkeypatch.setattr(journal._database, "write", lambda work: hops.append(1) or write(work))
        for number in range(700):
            delivered(journal, world.ticket(f"t{number}"))
        await flushed(journal)
        assert len(hops) == 1
        assert world.rows("SELECT count(*) FROM ticket WHERE outcome = 'delivered'") == [(700,)]
        assert world.rows("SELECT count(*), sum(json_array_length(steps)) FROM trail") == [(700, 2100)]


async def test_a_group_on_disk_keeps_no_rows_in_memory_for_those_who_still_point_to_it(world: World):
    async with world.opened() as journal:
        waiting, others = world.ticket(), [world.ticket(f"t{number}") for number in range(20)]
        pulled(journal, waiting, *others)
        asked(journal, waiting)
        group = journal._writer.group
        await flushed(journal)
        assert group.written
        assert (group.tickets, group.trails) == ([], [])


async def test_an_answer_on_disk_that_nobody_needs_is_out_of_memory_at_once(world: World):
    body = os.urandom(100_000)
    gc.disable()
    try:
        async with world.opened() as journal:
            before = sys.getrefcount(body)
            ticket = world.ticket()
            pulled(journal, ticket)
            journal.keep(ticket, Answer(Verdict.ANSWERED, body))
            await flushed(journal)
            ended(journal, ticket, Outcome.DELIVERED)
            await flushed(journal)
            assert sys.getrefcount(body) == before
    finally:
        gc.enable()


async def test_one_that_ended_when_it_came_is_one_row_and_does_not_end_its_namesake(world: World):
    async with world.opened() as journal:
        first, second = world.ticket("same"), world.ticket("same")
        pulled(journal, first)
        ended(journal, second, Outcome.DUPLICATE)
        await flushed(journal)
        found = world.rows("SELECT outcome FROM ticket ORDER BY id")
        assert found == [(None,), ("duplicates",)]


async def test_a_value_that_the_database_cannot_take_costs_its_own_row_only_and_is_said(world: World):
    async with world.opened() as journal:
        pulled(journal, world.ticket("t1"), world.ticket("\ud800"), world.ticket("t3", priority=1 << 70))
        pulled(journal, world.ticket("t4"))
        await flushed(journal)
        assert world.rows("SELECT trace_id FROM ticket ORDER BY id") == [("t1",), ("t4",)]
        assert journal.lost == 2
        assert journal.trouble is None
        assert [event.detail["count"] for event in world.said("rows_lost")] == [2]


async def test_a_payload_of_somebodys_own_types_is_kept_as_text(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        ticket.payload = {"big": 1 << 80, "own": {1}}
        pulled(journal, ticket)
        await flushed(journal)
        assert world.rows("SELECT payload FROM ticket") == [
            ('{"big": 1208925819614629174706176, "own": "{1}"}',)
        ]


async def test_memory_is_bounded_and_steps_give_way_to_what_recovery_needs(world: World):
    async with world.opened(group_seconds=3600, group_rows=10**9, rows_max=40, close_seconds=0.01) as journal:
        await flushed(journal)
        tickets = [world.ticket(f"t{number}") for number in range(30)]
        pulled(journal, *tickets)
        for ticket in tickets:
            asked(journal, ticket)
        assert journal.buffered[0] == 30  # half is full: no steps
        pulled(journal, *(world.ticket(f"u{number}") for number in range(30)))
        assert journal.buffered[0] == 40
        for ticket in tickets:
            ended(journal, ticket)
        assert journal.buffered[0] == 70  # an end always has room
        assert journal.lost == 30 + 20
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM ticket WHERE outcome IS NOT NULL") == [(30,)]


async def test_a_ticket_that_found_no_room_is_not_spoken_of_again(world: World):
    async with world.opened(rows_max=0) as journal:
        ticket = world.ticket()
        delivered(journal, ticket)
        assert journal.keep(ticket, PAGE) is None
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM ticket") == [(0,)]


async def test_level_off_is_a_journal_that_does_nothing(world: World):
    journal = make_journal(world.path, JournalConfig(level="off"), world.clock, Bus())
    assert isinstance(journal, SilentJournal)
    await journal.open()
    ticket = world.ticket()
    delivered(journal, ticket)
    journal.step(ticket, "query", str(Verdict.FAULT))
    journal.minute(LANE, 0, {})
    journal.forget(ticket)
    journal.reconfigure(JournalConfig())
    assert journal.keep(ticket, PAGE) is None
    found = await journal.recover(LANE, 0, query_age=1, again_age=1, callback_age=1, keys_max=1)
    assert found.clean
    assert not found.unanswered
    assert await journal.trace("t1") == await journal.trace_item("7", "8") == []
    assert await journal.history(LANE, 0, 1) == []
    assert journal.trouble is None
    assert journal.buffered == (0, 0)
    await journal.flush()
    await journal.close()
    assert not world.path.parent.exists()


@pytest.mark.parametrize("level", ["tickets", "answers"])
async def test_any_other_level_is_a_journal_on_disk(world: World, level: str):
    journal = make_journal(world.path, JournalConfig(level=level), world.clock, world.bus)
    assert not isinstance(journal, SilentJournal)
    await journal.open()
    await journal.close()
    assert world.path.exists()


async def test_files_are_readable_by_their_owner_alone(world: World):
    async with world.opened() as journal:
        delivered(journal, world.ticket())
        await flushed(journal)
        modes = {file.name: file.stat().st_mode & 0o777 for file in world.path.parent.iterdir()}
        assert set(modes.values()) == {0o600}, modes
        assert "journal.db-wal" in modes


async def test_a_loop_without_a_moments_rest_still_gets_its_rows_to_disk(world: World):
    async with world.opened() as journal:
        await flushed(journal)
        delivered(journal, world.ticket())
        writing = asyncio.create_task(journal.flush())
        began = world.clock.monotonic()
        while not writing.done() and world.clock.monotonic() < began + PATIENCE:
            sum(range(20_000))
            await asyncio.sleep(0)
        assert writing.done()
        assert world.rows("SELECT outcome FROM ticket") == [("delivered",)]


async def test_a_write_that_takes_long_is_given_way_to_and_then_seldom(monkeypatch):
    monkeypatch.setattr(breath, "FIRST_AFTER", 0.001)
    monkeypatch.setattr(breath, "EVERY", 0.001)
    pauses: list[float] = []
    enough = asyncio.Event()

    class Counting:
        def wait(self, seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == breath.ENOUGH:
                enough.set()

    monkeypatch.setattr(breath, "_nothing", Counting())
    with breath.breathing():
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
            await asyncio.sleep(breath.SELDOM / 5)
        assert len(pauses) == breath.ENOUGH
    assert set(pauses) == {breath.PAUSE}
