from pathlib import Path

import pytest
from journal_makers import LANE, PAGE, PATIENCE, World, asked, delivered, ended, flushed, pulled, recovered

from pipeline.journal.recovery import Paid
from pipeline.ticket import Answer, Outcome, Verdict

FAULT = Answer(Verdict.FAULT)
CUT_OFF = Answer(Verdict.FAULT, maybe_paid=True)
PROCESSING = Answer(Verdict.PROCESSING)
CREDIT = Answer(Verdict.CREDIT)


async def test_a_first_start_has_nothing_to_recover(world: World):
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert found.clean
        assert (found.undelivered, found.unanswered, found.dropped, found.processed) == ([], [], 0, [])


async def test_a_clean_end_is_known_as_one_and_a_sudden_end_is_not(world: World, tmp_path: Path):
    async with world.opened() as journal:
        await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    async with world.opened() as journal:
        assert (await recovered(journal, world)).clean
    async with sudden.opened() as journal:
        assert not (await recovered(journal, sudden)).clean


async def test_a_start_that_came_to_nothing_does_not_make_the_sudden_end_before_it_a_clean_one(
    world: World, tmp_path: Path
):
    async with world.opened() as journal:
        pulled(journal, world.ticket())
        await flushed(journal)
        sudden = world.crashed(tmp_path / "sudden")
    async with sudden.opened():
        pass  # the port was taken: nobody took anything up
    async with sudden.opened() as journal:
        found = await recovered(journal, sudden)
        assert not found.clean
        assert found.maybe_paid == ["t1"]
    async with sudden.opened() as journal:
        assert (await recovered(journal, sudden)).clean


async def test_tickets_in_the_queue_at_a_clean_end_come_back_whole_and_unpaid(world: World):
    async with world.opened() as journal:
        before = world.ticket(priority=3)
        pulled(journal, before)
    async with world.opened() as journal:
        [found] = (await recovered(journal, world)).unanswered
        after = found.ticket
        assert not found.maybe_paid
        for name in ("key", "trace_id", "stamp", "created", "payload", "token", "priority"):
            assert getattr(after, name) == getattr(before, name), name
        assert after.outcome is None


@pytest.mark.parametrize(
    "text", ['"', "\\", "\n\t\x01\x7f", "店铺🛒", "</script>", "'; --", "{}", "x" * 5000]
)
async def test_texts_of_every_kind_come_back_as_they_were(world: World, text: str):
    async with world.opened(level="answers") as journal:
        waiting = world.ticket(f"w{text}", token=text)
        answered = world.ticket(f"a{text}", token=text)
        waiting.payload = answered.payload = {text: [text, 1, None]}
        pulled(journal, waiting, answered)
        asked(journal, answered, Answer(Verdict.ANSWERED, text.encode(), text))
    async with world.opened() as journal:
        found = await recovered(journal, world)
        for before, after in ((waiting, found.unanswered[0].ticket), (answered, found.undelivered[0].ticket)):
            assert (after.trace_id, after.token, after.payload) == (
                before.trace_id,
                text,
                {text: [text, 1, None]},
            )
            assert {step.trace_id for step in await journal.trace(before.trace_id)} == {before.trace_id}
        answer = await journal.fetch(found.undelivered[0].kept)
        assert answer is not None
        assert (answer.body, answer.detail) == (text.encode(), text)


async def test_what_ended_does_not_come_back_and_its_key_is_remembered_newest_last(world: World):
    async with world.opened() as journal:
        for number in range(5):
            delivered(journal, world.ticket(f"t{number}", f"1:{number}:sg"))
        late = world.ticket("late", "1:99:sg")
        pulled(journal, late)
        ended(journal, late, Outcome.QUERY_STALE)
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert found.unanswered == []
        assert found.processed == [f"1:{number}:sg" for number in range(5)]
        few = await journal.recover(LANE, 0, query_age=1, again_age=1, callback_age=1, keys_max=2)
        assert few.processed == ["1:3:sg", "1:4:sg"]


@pytest.mark.parametrize(
    ("answers", "paid", "queries"),
    [
        ([], Paid.POSSIBLY, 0),
        ([None], Paid.MAYBE, 1),
        ([PROCESSING], Paid.POSSIBLY, 1),
        ([PROCESSING, None], Paid.MAYBE, 2),
        ([FAULT], Paid.POSSIBLY, 1),
        ([CUT_OFF], Paid.MAYBE, 1),
        ([CREDIT], Paid.POSSIBLY, 0),
        ([PAGE], Paid.YES, 1),
    ],
    ids=["waiting", "asked", "processing", "asked again", "fault", "cut off", "credit", "answered"],
)
async def test_after_a_sudden_end_it_is_known_what_may_have_been_paid(
    world: World, tmp_path: Path, answers: list[Answer | None], paid: Paid, queries: int
):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        for answer in answers:
            asked(journal, ticket, answer)
            if answer is CREDIT:
                ticket.queries -= 1
        await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    async with sudden.opened() as journal:
        everything = await recovered(journal, sudden)
        [found] = everything.unanswered
        assert found.paid is paid
        assert found.ticket.queries == queries
        assert everything.maybe_paid == ["t1"]


async def test_undelivered_answers_come_back_from_disk_with_their_tickets(world: World, tmp_path: Path):
    async with world.opened("answers") as journal:
        leader = world.ticket("t1")
        leader.followers = [world.ticket("t2")]
        pulled(journal, leader, *leader.followers)
        asked(journal, leader, PAGE)
        journal.calling(leader)
        await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    async with sudden.opened() as journal:
        found = await recovered(journal, sudden)
        assert found.unanswered == []
        one, two = found.undelivered
        assert (one.ticket.trace_id, one.maybe_delivered, one.ticket.callbacks) == ("t1", True, 1)
        assert (two.ticket.trace_id, two.maybe_delivered, two.ticket.callbacks) == ("t2", False, 0)
        assert one.kept is two.kept
        assert one.kept.size == len(PAGE.body)
        assert await journal.fetch(one.kept) == PAGE
        ended(journal, one.ticket)
        ended(journal, two.ticket)
        await flushed(journal)
        assert sudden.rows("SELECT count(*) FROM answer") == [(0,)]


async def test_a_callback_that_failed_was_not_maybe_delivered(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        asked(journal, ticket, PAGE)
        journal.calling(ticket)
        ticket.callbacks += 1
        journal.step(ticket, "callback", str(Verdict.FAULT))
        journal.keep(ticket, PAGE)
    async with world.opened() as journal:
        [found] = (await recovered(journal, world)).undelivered
        assert not found.maybe_delivered


async def test_what_is_too_late_is_counted_and_ends_by_the_name_of_restart(world: World):
    async with world.opened("answers") as journal:
        waiting, answered, in_time = (
            world.ticket("waiting", age=250),
            world.ticket("answered", age=300),
            world.ticket("in time", age=250),
        )
        pulled(journal, waiting, answered, in_time)
        asked(journal, answered, PAGE)
        asked(journal, in_time, Answer(Verdict.OFFLINE, b"{}"))
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert (found.dropped, found.dropped_paid) == (2, 1)
        assert [one.ticket.trace_id for one in found.undelivered] == ["in time"]
        await flushed(journal)
        outcomes = dict(world.rows("SELECT trace_id, outcome FROM ticket"))
        assert outcomes == {"waiting": "restart", "answered": "restart", "in time": None}
        await journal.upkeep.prune_once()
        assert world.rows("SELECT count(*) FROM answer") == [(1,)]  # the dropped one's body is gone


async def test_one_that_was_asked_about_may_be_as_old_as_any_repeated_query_and_so_may_who_joined_it(
    world: World,
):
    async with world.opened() as journal:
        asked_for, joined = (world.ticket(trace, "7:8:sg", age=250) for trace in ("asked", "joined"))
        waiting = world.ticket("waiting", age=250)
        pulled(journal, asked_for, joined, waiting)
        asked(journal, asked_for, PROCESSING)
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert [one.ticket.trace_id for one in found.unanswered] == ["asked", "joined"]
        assert found.dropped == 1


async def test_after_a_clock_was_set_back_between_runs_nobody_is_unborn(world: World):
    async with world.opened() as journal:
        pulled(journal, world.ticket())
    world.clock.ahead = -3600
    async with world.opened() as journal:
        now = world.clock.now()
        [found] = (await recovered(journal, world)).unanswered
        assert found.ticket.created == pytest.approx(now, abs=PATIENCE)


async def test_a_recovered_ticket_goes_on_under_its_old_number_and_can_be_recovered_again(world: World):
    async with world.opened() as journal:
        ticket = world.ticket()
        pulled(journal, ticket)
        asked(journal, ticket)
    for attempt in (2, 3):
        async with world.opened() as journal:
            [found] = (await recovered(journal, world)).unanswered
            asked(journal, found.ticket)
            assert found.ticket.queries == attempt
    async with world.opened() as journal:
        [found] = (await recovered(journal, world)).unanswered
        delivered_now = found.ticket
        asked(journal, delivered_now, PAGE)
        ended(journal, delivered_now)
        whats = [step.what for step in await journal.trace("t1")]
        assert whats == ["queued", "asking", "asking", "asking", "asking", "answered", "delivered"]
    async with world.opened() as journal:
        assert (await recovered(journal, world)).unanswered == []


async def test_lanes_recover_their_own(world: World):
    async with world.opened() as journal:
        journal.pulled("one", world.ticket("t1"))
        journal.pulled("two", world.ticket("t2"))
    async with world.opened() as journal:
        for lane, trace in (("one", "t1"), ("two", "t2")):
            found = await recovered(journal, world, lane)
            assert [one.ticket.trace_id for one in found.unanswered] == [trace]


async def test_tickets_of_this_run_are_not_taken_for_the_last_ones(world: World):
    async with world.opened() as journal:
        pulled(journal, world.ticket())
        await flushed(journal)
        assert (await recovered(journal, world)).unanswered == []


async def test_no_token_is_readable_in_any_file_of_the_journal(world: World):
    async with world.opened("answers") as journal:
        ticket = world.ticket(token="canary-token-5b")
        pulled(journal, ticket)
        asked(journal, ticket, PAGE)
        await flushed(journal)
        for file in world.path.parent.iterdir():
            assert b"canary-token" not in file.read_bytes(), file.name


async def test_a_ticket_whose_token_cannot_be_read_any_more_is_dropped_not_sent_without_it(world: World):
    async with world.opened() as journal:
        pulled(journal, world.ticket("with"), world.ticket("without", token=""))
    world.path.with_suffix(".key").unlink()
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert [one.ticket.trace_id for one in found.unanswered] == ["without"]
        assert found.dropped == 1


async def test_an_answer_on_disk_is_everybodys_who_asked_for_its_key(world: World, tmp_path: Path):
    async with world.opened() as journal:
        failed, joined = world.ticket("failed", "7:8:sg"), world.ticket("joined", "7:8:sg")
        other = world.ticket("other")
        pulled(journal, failed, joined, other)
        asked(journal, failed, PAGE)
        journal.keep(failed, PAGE)
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert [one.ticket.trace_id for one in found.undelivered] == ["failed", "joined"]
        assert [one.ticket.trace_id for one in found.unanswered] == ["other"]
        ended(journal, found.undelivered[0].ticket)
        await flushed(journal)
        sudden = world.crashed(tmp_path / "crash")
    async with sudden.opened() as journal:
        [left] = (await recovered(journal, sudden)).undelivered
        assert left.ticket.trace_id == "joined"
        answer = await journal.fetch(left.kept)
        assert answer is not None
        assert answer.body == PAGE.body


async def test_tickets_of_a_lane_that_is_not_configured_any_more_are_told_and_kept(world: World):
    told = []
    world.bus.subscribe(lambda event: told.append((event.kind, event.detail)))
    async with world.opened() as journal:
        pulled(journal, world.ticket("t1"), world.ticket("t2"))
        await flushed(journal)
        await journal.tell_unclaimed({"other"})
        assert told == [], "those of this run are not left over"
    for _ in range(2):
        async with world.opened() as journal:
            await journal.tell_unclaimed({LANE})
            assert told == []
            await journal.tell_unclaimed({"other"})
            assert [detail for _, detail in told] == [{"what": "unclaimed", "why": LANE, "count": 2}]
            told.clear()
    async with world.opened() as journal:
        assert len((await recovered(journal, world)).unanswered) == 2
