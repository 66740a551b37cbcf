import asyncio

from journal_makers import LANE, PAGE, PATIENCE, World, delivered, ended, flushed, pulled, recovered

from pipeline.ticket import Outcome

DAY = 86_400


def count(world: World, table: str) -> int:
    return int(world.rows(f"SELECT count(*) FROM {table}")[0][0])


async def test_what_is_older_than_keep_days_goes_a_few_rows_at_a_time(world: World):
    async with world.opened(prune_rows=10) as journal:
        for number in range(25):
            delivered(journal, world.ticket(f"t{number}"))
        await flushed(journal)
        world.clock.ahead = 2.9 * DAY
        assert (await journal.upkeep.prune_once()).rows == 0
        delivered(journal, world.ticket("young"))
        await flushed(journal)
        world.clock.ahead = 3.1 * DAY
        left = []
        for _ in range(3):
            pruned = await journal.upkeep.prune_once()
            assert pruned.rows <= 10
            left.append((count(world, "ticket"), count(world, "trail"), pruned.more))
        assert left == [(16, 16, True), (6, 6, True), (1, 1, False)]
        assert await journal.trace("t1") == []
        assert await journal.trace("young")


async def test_pruning_goes_on_by_itself_until_nothing_old_is_left(world: World):
    async with world.opened(prune_rows=5, prune_every=0.01) as journal:
        for number in range(40):
            delivered(journal, world.ticket(f"t{number}"))
        await flushed(journal)
        world.clock.ahead = 4 * DAY
        async with asyncio.timeout(PATIENCE):
            while await journal.trace("t39"):
                pass
        assert count(world, "ticket") == 0


async def test_the_oldest_traces_go_when_the_content_is_too_large(world: World):
    async with world.opened(prune_rows=50, size_max=200_000) as journal:
        for number in range(2000):
            delivered(journal, world.ticket(f"t{number}"))
        await flushed(journal)
        while (await journal.upkeep.prune_once()).more:
            pass
        left = count(world, "ticket")
        assert 0 < left < 1000
        assert world.rows("SELECT max(id) FROM ticket") == [(2000,)]


async def test_a_ticket_under_way_is_never_pruned_for_size(world: World):
    async with world.opened() as journal:
        pulled(journal, world.ticket("open"))
    async with world.opened(size_max=0) as journal:
        [found] = (await recovered(journal, world)).unanswered
        pulled(journal, world.ticket("new"))
        ended(journal, world.ticket("gone"), Outcome.DUPLICATE)
        await flushed(journal)
        await journal.upkeep.prune_once()
        assert world.rows("SELECT trace_id FROM ticket ORDER BY id") == [("open",), ("new",)]
        ended(journal, found.ticket)


async def test_what_a_lane_that_is_gone_left_open_is_pruned_by_age(world: World):
    async with world.opened() as journal:
        journal.pulled("gone", world.ticket())
    world.clock.ahead = 4 * DAY
    async with world.opened() as journal:
        await journal.upkeep.prune_once()
        assert count(world, "ticket") == 0


async def test_answers_that_no_open_ticket_needs_go(world: World):
    async with world.opened() as journal:
        tickets = [world.ticket(f"t{number}") for number in range(2)]
        for ticket in tickets:
            pulled(journal, ticket)
            journal.keep(ticket, type(PAGE)(PAGE.verdict, ticket.trace_id.encode()))
        await flushed(journal)
        await journal._database.write(
            lambda connection: connection.execute("UPDATE ticket SET answer = NULL WHERE trace_id = 't0'")
        )
        assert (await journal.upkeep.prune_once()).rows == 0  # this run's answers are its own affair
    async with world.opened() as journal:
        assert (await journal.upkeep.prune_once()).rows == 1
        [found] = (await recovered(journal, world)).undelivered
        assert (await journal.fetch(found.kept)).body == b"t1"


async def test_minutes_are_kept_thirty_days_whatever_happens_to_traces(world: World):
    async with world.opened(size_max=0) as journal:
        now = world.clock.now()
        journal.minute(LANE, now - 31 * DAY, {})
        journal.minute(LANE, now - 29 * DAY, {})
        await flushed(journal)
        assert (await journal.upkeep.prune_once()).rows == 1
        assert count(world, "minute") == 1


async def test_keep_days_can_change_while_it_runs(world: World):
    async with world.opened() as journal:
        delivered(journal, world.ticket())
        await flushed(journal)
        world.clock.ahead = 1.5 * DAY
        assert (await journal.upkeep.prune_once()).rows == 0
        journal.reconfigure(journal.upkeep.config.model_copy(update={"keep_days": 1}))
        assert (await journal.upkeep.prune_once()).rows == 1
