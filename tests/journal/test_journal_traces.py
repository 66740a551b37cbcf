import pytest
from journal_makers import LANE, PAGE, World, asked, delivered, ended, flushed, pulled

from pipeline.errors import JournalFault
from pipeline.ticket import Answer, Outcome, Verdict


async def test_a_trace_tells_each_step_with_its_time_stage_attempt_and_outcome(world: World):
    async with world.opened() as journal:
        ticket = world.ticket(age=30)
        pulled(journal, ticket)
        asked(journal, ticket, Answer(Verdict.PROCESSING))
        asked(journal, ticket, PAGE)
        journal.calling(ticket)
        ticket.callbacks += 1
        journal.step(ticket, "callback", "fault")
        journal.calling(ticket)
        ticket.callbacks += 1
        ended(journal, ticket)
        steps = await journal.trace("t1")
        assert [(step.stage, step.what, step.attempt) for step in steps] == [
            ("pull", "queued", 0),
            ("query", "asking", 1),
            ("query", "processing", 1),
            ("query", "asking", 2),
            ("query", "answered", 2),
            ("callback", "calling", 1),
            ("callback", "fault", 1),
            ("callback", "calling", 2),
            ("callback", "delivered", 2),
        ]
        assert all(30 <= step.age < 40 for step in steps)
        assert [step.at for step in steps[1:-1]] == sorted({step.at for step in steps[1:-1]})
        assert {(step.lane, step.trace_id, step.key) for step in steps} == {(LANE, "t1", "7:8:sg")}


async def test_rows_still_in_memory_are_in_the_trace(world: World):
    async with world.opened(group_seconds=3600) as journal:
        pulled(journal, world.ticket())
        assert [step.what for step in await journal.trace("t1")] == ["queued"]


async def test_an_unknown_trace_has_no_steps(world: World):
    async with world.opened() as journal:
        delivered(journal, world.ticket())
        assert await journal.trace("t2") == []


async def test_tickets_are_found_by_shop_and_item_in_every_country(world: World):
    async with world.opened() as journal:
        for trace, key in (("t1", "7:8:sg"), ("t2", "7:8:my"), ("t3", "7:88:sg"), ("t4", "77:8:sg")):
            delivered(journal, world.ticket(trace, key))
        found = await journal.trace_item("7", "8")
        assert {step.trace_id for step in found} == {"t1", "t2"}
        assert await journal.trace_item("%", "8") == []


async def test_a_trace_handed_out_again_is_told_ticket_by_ticket(world: World):
    async with world.opened() as journal:
        for _ in range(2):
            ticket = world.ticket()
            journal.pulled(LANE, ticket, "joined")
            ended(journal, ticket, Outcome.QUERY_STALE)
        assert [step.what for step in await journal.trace("t1")] == ["joined", "query_stale"] * 2


async def test_a_duplicate_is_traced_by_its_outcome_alone(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        ticket.outcome = Outcome.DUPLICATE
        journal.ended(LANE, ticket, "pull")
        assert [(step.stage, step.what) for step in await journal.trace("t1")] == [("pull", "duplicates")]


async def test_reading_from_a_journal_that_is_not_open_is_a_fault_of_one_line(world: World):
    journal = world.journal()
    with pytest.raises(JournalFault, match="not open"):
        await journal.trace("t1")


async def test_two_traces_with_one_checksum_are_told_apart(world: World):
    one, two = "plumless", "buckeroo"  # the classic pair: CRC-32 4ddb0c25
    async with world.opened() as journal:
        delivered(journal, world.ticket(one))
        delivered(journal, world.ticket(two))
        await flushed(journal)
        assert len(world.rows("SELECT DISTINCT trace_crc FROM ticket")) == 1
        assert {step.trace_id for step in await journal.trace(one)} == {one}
