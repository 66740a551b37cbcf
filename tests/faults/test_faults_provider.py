"""Faults 1 to 6 and 8: the provider hangs, drips, lies, refuses, fails and breaks off."""

from __future__ import annotations

from email.utils import formatdate

import orjson

from pipeline.events import Event, Kind
from pipeline.sim.reply import Reply
from pipeline.ticket import Verdict
from tests.e2e.harness import LANE, eventually, merged, upstream_runs_dry
from tests.faults.fault_proxy import Faults
from tests.faults.faulty_world import SHORT_LIVES, scripted, stage

#: Retries that need not wait for their budget, where a test is about something else.
EAGER = {"delay": 0.1, "delay_max": 0.2, "per_second": 1000}
#: The breaker stays out of it.
PATIENT = {"trip_after": 1_000_000, "min_samples": 1_000_000}
MAX_AGE = SHORT_LIVES["query"]["max_age"]


async def test_1_a_provider_that_hangs_is_a_fault_after_slow_after_and_ends_at_the_deadline() -> None:
    lane = merged(SHORT_LIVES, {"breaker": {"slow_after": 1, **PATIENT}})
    async with stage(lane, rate=20, query={"hang": 1.0}) as play:
        control = play.live.daemon.lanes[LANE].controller.stages["query"]
        await eventually(lambda: control.breaker.window.marked >= 3)
        # Counted, though nobody cut these calls off: they are all still open.
        assert control.busy >= 3
        assert play.counter("query_faults") == 0
        await eventually(lambda: play.counter("query_expired") >= 5)
        # TimedOut comes at the deadline, neither before nor much later.
        assert min(play.record.ages["query", "query_expired"]) >= MAX_AGE - 0.1
        assert play.counter("maybe_paid") == play.counter("query_faults") > 0
        play.server.world.change({"query": {"hang": 0.0}})
        await play.delivers(20)
        await play.all_ended()
        # The world notices a moment later that we hung up.
        await eventually(lambda: play.server.world.ledger._queries_open == 0)
        assert max(play.record.ages["query", "query_expired"]) < MAX_AGE + 1.5


async def test_2_a_body_of_one_byte_a_second_ends_with_its_ticket_and_not_with_an_idle_timer() -> None:
    lane = merged(SHORT_LIVES, {"breaker": {"slow_after": 1, **PATIENT}})
    async with stage(lane, rate=10) as play:
        await play.delivers(5)
        play.query.down = Faults(drip=1.0)
        before = play.query.counts["down"]
        await eventually(lambda: play.counter("query_expired") >= 5)
        assert play.query.counts["down"] > before  # bytes did come
        assert min(play.record.ages["query", "query_expired"]) >= MAX_AGE - 0.1
        assert play.counter("maybe_paid") == play.counter("query_faults") > 0
        play.query.heal()
        play.query.reset_all()
        await play.delivers(10)
        await play.all_ended()
        assert max(play.record.ages["query", "query_expired"]) < MAX_AGE + 1.5


async def test_3_invalid_and_truncated_json_is_a_fault_that_is_counted_and_asked_again() -> None:
    async with stage({"retry": EAGER, "breaker": PATIENT}, query={"garbage": 0.3}) as play:
        await eventually(lambda: play.counter("query_faults") >= 20)
        play.server.world.change({"query": {"garbage": 0.0}})
        faults = play.counter("query_faults")
        play.query.down = Faults(close_after=500, in_body=True, times=20)
        await play.query.until(lambda counts: counts["closes"] == 20)
        await eventually(lambda: play.counter("query_faults") >= faults + 20)
        truth = await play.all_ended()
        assert truth["delivered"] == truth["handed_out"] > 0
        assert play.counter("worker_crashes") == 0
        assert play.record.steps["query", "fault"] == play.counter("query_faults")


async def test_4_a_200_without_success_is_a_result_and_no_evidence_against_health() -> None:
    def judge(_key: str, _count: int) -> Reply:
        body = orjson.dumps({"_success": False, "error": {"code": 1234567, "message": "gone"}})
        return Reply(0.01, 200, Verdict.OFFLINE, body)

    async with stage({"breaker": {"min_samples": 5, "trip_after": 5}}) as play:
        scripted(play.server, judge)
        await play.delivers(100)
        truth = await play.all_ended()
        assert play.counter("offline") == play.counter("delivered") == truth["delivered"]
        window = play.live.status()["stages"]["query"]["window"]
        assert window["total"] >= 100
        assert window["faults"] == play.counter("query_faults") == play.counter("retries") == 0
        assert play.watch.of_kind(Kind.BREAKER) == []


async def test_5_retry_after_is_honoured_in_seconds_and_as_a_date_and_clamped_when_absurd() -> None:
    said = ("1", "date", "soon", "-3", "nan", "1e9")
    chosen: dict[str, str] = {}
    earliest: dict[str, float] = {}

    # The last kind waits for a minute: the drain need not.
    async with stage(
        {"retry": EAGER, "breaker": PATIENT}, {"daemon": {"drain_timeout": 0.1}}, over=False, rate=40
    ) as play:
        clock = play.server.world.clock

        def judge(key: str, count: int) -> Reply | None:
            if count > 1:
                return None
            value = chosen[key] = said[len(chosen) % len(said)]
            if value == "date":
                due = int(clock.now()) + 2
                earliest[key] = clock.monotonic() + due - clock.now()
                value = formatdate(due, usegmt=True)
            elif value == "1":
                earliest[key] = clock.monotonic() + 1
            return Reply(0.01, 429, Verdict.FAULT, b"{}", {"Retry-After": value}, detail="HTTP 429")

        asked = scripted(play.server, judge)
        await eventually(lambda: len(chosen) >= 36)
        await upstream_runs_dry(play.server)
        await eventually(lambda: len(chosen) == play.server.world.ledger.counts["handed_out"])
        absurd = {key for key, value in chosen.items() if value == "1e9"}
        line = play.live.daemon.lanes[LANE].queue.line
        await eventually(lambda: {ticket.key for ticket in line} == absurd)
        # Eleven days became one minute.
        now = play.live.daemon.clock.monotonic()
        assert all(now + 30 < due <= now + 60 for due, _, _ in line._delayed)

        def asked_again() -> dict[str, float]:
            before = [{key for key, _ in asked[:number]} for number in range(len(asked))]
            return {key: at for (key, at), seen in zip(asked, before, strict=True) if key in seen}

        # One that has left the line is on its way to the provider, which need not have seen it yet.
        await eventually(lambda: set(asked_again()) == set(chosen) - absurd)
        again = asked_again()
        for key, moment in earliest.items():
            assert again[key] >= moment - 0.01, chosen[key]
        await eventually(lambda: play.counter("delivered") == len(chosen) - len(absurd))


async def test_6_a_burst_of_5xx_degrades_at_70_recovers_below_35_and_climbs_the_ladder() -> None:
    breaker = {"window": 2, "min_samples": 40, "trip_after": 60, "trials": 4, "pause": 0.1, "pause_max": 0.4}
    # New tickets are the trials: those that failed must not use up the budget of the world's return.
    async with stage({"breaker": breaker, "retry": {"delay": 0.2}}, rate=150) as play:
        control = play.live.daemon.lanes[LANE].controller.stages["query"].breaker
        moves: list[tuple[str, str, float, int]] = []

        def note(event: Event) -> None:
            if event.kind is Kind.BREAKER and event.stage == "query":
                window = control.window
                moves.append((event.detail["before"], event.detail["after"], window.share, window.total))

        play.live.daemon.bus.subscribe(note)

        def went(before: str, after: str) -> int:
            return sum(move[:2] == (before, after) for move in moves)

        await play.delivers(50)
        play.server.world.change({"query": {"error": 0.9}})
        await eventually(lambda: went("normal", "degraded") or went("normal", "open"), why=lambda: moves)
        play.server.world.change({"query": {"error": 0.0}})
        await eventually(lambda: went("degraded", "normal"), why=lambda: moves)
        play.server.world.change({"query": {"error": 1.0}})
        # 0.1, 0.2, 0.4 and 0.4 again: check_invariants compares each pause with its rung.
        begun = len(moves)
        await eventually(
            lambda: sum(after == "open" for _, after, _, _ in moves[begun:]) >= 4, why=lambda: moves
        )
        play.server.world.change({"query": {"error": 0.0}})
        await eventually(lambda: control.mode == "normal", why=lambda: moves)
        again = len(moves)
        play.server.world.change({"query": {"error": 1.0}})
        await eventually(lambda: any(after == "open" for _, after, _, _ in moves[again:]))
        play.server.world.change({"query": {"error": 0.0}})
        await eventually(lambda: control.mode == "normal", why=lambda: moves)

        for before, after, share, total in moves:
            if (before, after) == ("normal", "degraded"):
                assert share >= 0.70
                assert total >= breaker["min_samples"]
            elif after == "normal":
                assert share < 0.35
        pauses = [e.detail["pause"] for e in play.watch.of_kind(Kind.BREAKER) if e.detail["after"] == "open"]
        assert [0.1, 0.2, 0.4, 0.4] in [pauses[n : n + 4] for n in range(len(pauses))], pauses
        assert 0.1 in pauses[pauses.index(0.4) :]  # back in normal, the ladder begins anew
        truth = await play.all_ended()
        assert truth["delivered"] == truth["handed_out"]


async def test_8_a_reset_in_mid_body_is_maybe_paid_queried_again_and_listed() -> None:
    async with stage({"retry": EAGER, "breaker": PATIENT}) as play:
        await play.delivers(20)
        play.query.down = Faults(reset_after=1000, in_body=True, times=10)
        await play.query.until(lambda counts: counts["resets"] == 10)
        truth = await play.all_ended()
        # The world saw each of those ten paid twice, and we say so wherever an operator looks.
        assert truth["delivered"] == truth["handed_out"]
        assert truth["paid_again"] == 10
        assert (await play.live.lane())["counters"]["maybe_paid"] == 10
        metrics = [line for line in (await play.live.text("/metrics")).splitlines() if "maybe_paid" in line]
        assert any(line.endswith(" 10.0") for line in metrics), metrics
