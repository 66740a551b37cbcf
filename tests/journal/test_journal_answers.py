import asyncio
import sqlite3
from contextlib import closing

import pytest
from journal_makers import PAGE, PATIENCE, World, asked, delivered, ended, flushed, pulled

from pipeline.errors import JournalFault
from pipeline.ticket import Answer, Verdict


async def test_an_answer_can_leave_memory_once_it_is_on_disk_and_comes_back_the_same(world: World):
    async with world.opened(group_seconds=3600) as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        kept = journal.keep(ticket, PAGE)
        assert kept is not None
        assert not kept.let_go()
        assert kept.answer is PAGE
        await flushed(journal)
        assert kept.let_go()
        assert kept.answer is None
        assert await journal.fetch(kept) == PAGE


async def test_what_is_still_in_memory_is_not_read_from_disk(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        kept = journal.keep(ticket, PAGE)
        assert kept is not None
        assert await journal.fetch(kept) is PAGE


async def test_keeping_twice_is_keeping_once(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        assert journal.keep(ticket, PAGE) is journal.keep(ticket, PAGE)
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM answer") == [(1,)]


async def test_tickets_that_share_an_answer_share_its_place_until_the_last_has_ended(world: World):
    async with world.opened() as journal:
        one, two = world.ticket("t1"), world.ticket("t2")
        pulled(journal, one, two)
        assert journal.keep(one, PAGE) is journal.keep(two, PAGE)
        await flushed(journal)
        ended(journal, one)
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM answer") == [(1,)]
        ended(journal, two)
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM answer") == [(0,)]


async def test_an_answer_at_the_address_of_one_that_is_gone_is_another_answer(world: World):
    async with world.opened() as journal:
        one, two = world.ticket("t1"), world.ticket("t2")
        pulled(journal, one, two)
        first = journal.keep(one, PAGE)
        await flushed(journal)
        assert first is not None
        assert first.let_go()
        second = journal.keep(two, PAGE)
        assert second is not None
        assert second.number != first.number


async def test_a_forgotten_answer_leaves_the_disk_and_the_ticket_stays(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        journal.keep(ticket, PAGE)
        await flushed(journal)
        journal.forget(ticket)
        journal.forget(ticket)
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM answer") == [(0,)]
        assert world.rows("SELECT outcome FROM ticket") == [(None,)]


async def test_at_level_tickets_an_answer_is_not_written_unless_it_is_to_be_kept(world: World):
    async with world.opened("tickets") as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        asked(journal, ticket, PAGE)
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM answer") == [(0,)]


async def test_at_level_answers_every_result_is_written_compressed_before_the_callback(world: World):
    async with world.opened("answers") as journal:
        ticket = world.ticket()
        ticket.followers = [world.ticket("t2")]
        pulled(journal, ticket, *ticket.followers)
        asked(journal, ticket, Answer(Verdict.PROCESSING, b"{}"))
        asked(journal, ticket, PAGE)
        await flushed(journal)
        [(size, packed)] = world.rows("SELECT size, length(body) FROM answer")
        assert size == len(PAGE.body)
        assert packed < size / 5
        assert world.rows("SELECT count(*) FROM ticket WHERE answer IS NOT NULL") == [(2,)]


async def test_a_callback_waits_for_its_answer_to_be_on_disk_but_not_for_a_disk_in_trouble(world: World):
    async with world.opened("answers") as journal:
        sound, stuck = world.ticket("t1"), world.ticket("t2")
        pulled(journal, sound, stuck)
        asked(journal, sound, PAGE)
        saving = journal.saving(sound)
        assert saving is not None
        await saving
        assert world.rows("SELECT count(*) FROM answer") == [(1,)]
        assert journal.saving(sound) is None
        with closing(sqlite3.connect(world.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asked(journal, stuck, Answer(Verdict.OFFLINE, b"{}"))
            assert await world.next_trouble() == "locked by another process"
            assert journal.saving(stuck) is None
            other.execute("ROLLBACK")
    async with world.opened("tickets") as journal:
        ticket = world.ticket("t3")
        pulled(journal, ticket)
        journal.keep(ticket, PAGE)
        assert journal.saving(ticket) is None


async def test_one_that_joins_an_answered_ticket_shares_its_answer_on_disk(world: World):
    async with world.opened("answers") as journal:
        first, late = world.ticket("t1"), world.ticket("t2")
        pulled(journal, first)
        asked(journal, first, PAGE)
        late.answer = PAGE
        journal.pulled("shopee", late, "answered")
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM answer") == [(1,)]
        assert world.rows("SELECT count(DISTINCT answer), count(answer) FROM ticket") == [(1, 2)]
        assert [step.what for step in await journal.trace("t2")] == ["answered", "answered"]


async def test_an_answer_delivered_before_its_group_was_written_is_never_written(world: World):
    async with world.opened("answers", group_seconds=3600) as journal:
        delivered(journal, world.ticket())
        await flushed(journal)
        assert world.rows("SELECT count(*) FROM answer") == [(0,)]


async def test_answers_on_their_way_to_disk_are_bounded_in_bytes(world: World):
    async with world.opened(group_seconds=3600, bytes_max=len(PAGE.body)) as journal:
        one, two = world.ticket("t1"), world.ticket("t2")
        pulled(journal, one, two)
        assert journal.keep(one, PAGE) is not None
        other = Answer(Verdict.ANSWERED, b"y" + PAGE.body)
        assert journal.keep(two, other) is None
        await flushed(journal)
        assert journal.keep(two, Answer(Verdict.ANSWERED, b"y")) is not None


async def test_a_disk_that_cannot_be_read_now_has_lost_nothing(world: World, monkeypatch: pytest.MonkeyPatch):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        kept = journal.keep(ticket, PAGE)
        assert kept is not None
        await flushed(journal)
        kept.let_go()

        def fails(*_: object, **__: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr("pipeline.journal.journal.read_answer", fails)
            with pytest.raises(JournalFault, match="disk I/O error"):
                await journal.fetch(kept)
        assert await journal.fetch(kept) == PAGE


async def test_an_answer_that_the_disk_has_lost_is_none(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        kept = journal.keep(ticket, PAGE)
        assert kept is not None
        async with asyncio.timeout(PATIENCE):
            await kept.wait_saved()
        kept.let_go()
        journal.forget(ticket)
        await flushed(journal)
        assert await journal.fetch(kept) is None
