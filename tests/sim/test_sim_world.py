from datetime import datetime

import orjson
import pytest

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.sim.behaviour import Behaviour, End, changed
from pipeline.sim.reply import Break, Call
from pipeline.sim.upstream import as_read, wire, written
from pipeline.sim.virtual import START, run_virtual
from pipeline.sim.world import World
from pipeline.ticket import Verdict

SMALL = Behaviour(page_min=1000, page_max=1500)


class HandClock:
    """Time moved by hand: the world never sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return START + self.seconds

    def monotonic(self) -> float:
        return self.seconds

    def step(self) -> float:
        return 0.0

    def adopt(self) -> None: ...

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the world must not sleep")


def make(**changes: object) -> tuple[World, HandClock]:
    clock = HandClock()
    typed: Clock = clock
    return World(typed, changed(SMALL, changes)), clock


def played(call: Call) -> Call:
    with call:
        call.happen()
    return call


def page_url(offer) -> str:
    return f"https://shopee.tw/api?item_id={offer.item_id}&x=1&shop_id={offer.shop_id}&y=2"


def deliver(world: World, offer, result: bytes = b'{"data":{}}') -> Call:
    return played(world.receive(f"tok-{offer.trace_id}", page_url(offer), result))


# upstream


def test_tickets_arrive_at_the_rate_and_carry_the_moment_they_arrived():
    world, clock = make(rate=20, pull_cap=10_000)
    clock.seconds = 100
    offers = world.hand_out(10_000)
    assert 1700 < len(offers) < 2300
    assert START <= offers[0].created <= offers[-1].created <= clock.now()


def test_upstream_caps_what_it_hands_out():
    world, clock = make(rate=100, pull_cap=50)
    clock.seconds = 10
    assert len(world.hand_out(200)) == 50
    assert len(world.hand_out(7)) == 7


def test_upstream_may_ignore_the_limit():
    world, clock = make(rate=1000, pull_cap=5000, ignore_limit=True)
    clock.seconds = 10
    assert len(world.hand_out(1)) == 5000


def test_upstream_forgets_the_oldest_beyond_its_backlog_even_after_a_long_sleep():
    world, clock = make(rate=1000, backlog_max=100, pull_cap=1000)
    clock.seconds = 86_400
    offers = world.hand_out(1000)
    assert len(offers) <= 100
    assert offers[0].created > clock.now() - 1
    assert world.truth()["lost_upstream"] == pytest.approx(86_400_000, rel=0.01)


def test_a_change_of_rate_counts_from_its_moment():
    world, clock = make(rate=0, pull_cap=10_000)
    clock.seconds = 1000
    world.change({"rate": 10})
    clock.seconds = 1010
    assert 60 < len(world.hand_out(10_000)) < 140


def test_lifo_hands_out_the_youngest_first():
    world, clock = make(rate=10, order="lifo")
    clock.seconds = 100
    offers = world.hand_out(5)
    assert [o.created for o in offers] == sorted((o.created for o in offers), reverse=True)


def test_duplicates_share_a_key_but_never_a_trace():
    world, clock = make(rate=100, duplicate_share=0.5, pull_cap=10_000)
    clock.seconds = 20
    offers = world.hand_out(10_000)
    assert len({o.trace_id for o in offers}) == len(offers)
    assert 0.4 < len({o.key for o in offers}) / len(offers) < 0.6


def test_without_duplicates_no_key_comes_twice():
    world, clock = make(rate=1000, duplicate_share=0, pull_cap=100_000, backlog_max=100_000)
    clock.seconds = 50
    offers = world.hand_out(100_000)
    assert len({o.item_id for o in offers}) == len(offers)


def test_a_repeated_ticket_is_the_same_trace_and_counted_apart():
    world, clock = make(rate=10, repeat_share=1)
    clock.seconds = 1
    first = world.hand_out(50)
    world.change({"rate": 0})
    assert {o.trace_id for o in world.hand_out(50)} == {o.trace_id for o in first}
    assert world.truth()["handed_out"] == len(first)
    assert world.truth()["repeats"] == len(first)


def test_two_starts_never_share_an_id():
    world, clock = make(rate=10)
    clock.seconds = 5
    mine = {o.trace_id for o in world.hand_out(50)} | {o.item_id for o in world.hand_out(50)}
    other = World(clock, SMALL)
    clock.seconds = 10
    theirs = {o.trace_id for o in other.hand_out(50)} | {o.item_id for o in other.hand_out(50)}
    assert not mine & theirs


def test_a_ticket_looks_on_the_wire_as_the_contract_says():
    world, clock = make(rate=10)
    clock.seconds = 5
    offer = world.hand_out(1)[0]
    task = wire(offer, "local")
    assert set(task["data"]) == {
        "id", "shop_id", "good_id", "country", "trace_id", "type", "created_at", "token",
    }  # fmt: skip
    read = datetime.fromisoformat(task["data"]["created_at"] + "+08:00")
    assert read.timestamp() == int(offer.created)
    assert task["data"]["token"] == f"tok-{offer.trace_id}"


def test_every_stamp_is_read_as_it_was_written():
    created = START + 0.25
    assert written(created, "epoch") == as_read(created, "epoch") == START
    assert written(created, "epoch_ms") == as_read(created, "epoch_ms") * 1000
    iso = datetime.fromisoformat(str(written(created, "iso")))
    assert iso.timestamp() == as_read(created, "iso")
    assert as_read(created, "utc_wrong_zone") == as_read(created, "local") - 8 * 3600


# provider


def verdict(world: World, item: object = 1) -> Verdict:
    return played(world.ask(5, item, "tw")).reply.verdict


def test_a_first_query_says_processing_for_its_share_and_a_later_one_succeeds():
    world, clock = make(processing_share=0.4, offline_share=0)
    first = [verdict(world, item) for item in range(1000)]
    assert 330 < first.count(Verdict.PROCESSING) < 470
    clock.seconds = 0.5
    again = [item for item in range(1000) if first[item] is Verdict.PROCESSING]
    assert all(verdict(world, item) is Verdict.PROCESSING for item in again)
    clock.seconds = 0.9
    assert all(verdict(world, item) is Verdict.ANSWERED for item in again)
    assert world.truth()["paid"] == 1000


def test_some_products_are_gone_and_stay_gone():
    world, _ = make(processing_share=0, offline_share=0.2)
    first = [verdict(world, item) for item in range(500)]
    assert 60 < first.count(Verdict.OFFLINE) < 140
    assert [verdict(world, item) for item in range(500)] == first


def test_credit_runs_down_and_then_every_query_says_so():
    world, _ = make(processing_share=0, credits=3)
    assert [verdict(world, i) for i in range(3)] == [Verdict.ANSWERED] * 3
    reply = played(world.ask(5, 9, "tw")).reply
    assert reply.verdict is Verdict.CREDIT
    assert orjson.loads(reply.body)["error"]["code"] == 1070102
    assert world.credits_left() == 0
    world.change({"credits": 10})
    assert verdict(world) is Verdict.ANSWERED


def test_a_provider_at_its_capacity_rejects_with_retry_after():
    world, clock = make(processing_share=0, capacity=10, retry_after="2")
    replies = [played(world.ask(5, item, "tw")).reply for item in range(20)]
    assert [r.status for r in replies].count(429) == 10
    assert replies[-1].retry_after == 2
    clock.seconds = 0.5
    assert sum(verdict(world, item) is Verdict.ANSWERED for item in range(20)) == 5


def test_a_provider_that_queues_gets_slower_and_refuses_beyond_its_limit():
    world, _ = make(
        processing_share=0, capacity=10, overload="queue", queue_max=2.05, query={"latency": 0.1, "sigma": 0}
    )
    replies = [played(world.ask(5, item, "tw")).reply for item in range(30)]
    assert replies[9].delay == pytest.approx(1.1)
    assert [r.status for r in replies].count(503) == 10


@pytest.mark.parametrize(
    ("fault", "status", "broken", "paid"),
    [
        ("error", None, None, 0),
        ("hang", 200, Break.HANG, 0),
        ("reset", 200, Break.RESET, 0),
        ("garbage", 200, None, 0),
        ("truncate", 200, Break.TRUNCATE, 1),
        ("slow", 200, Break.SLOW, 1),
    ],
)
def test_every_fault_is_a_fault_and_only_a_cut_off_answer_is_paid(fault, status, broken, paid):
    world, _ = make(processing_share=0, offline_share=0, query={fault: 1.0})
    reply = played(world.ask(5, 1, "tw")).reply
    assert reply.verdict is Verdict.FAULT
    assert reply.broken is broken
    assert reply.status == status if status else reply.status in (500, 502, 503)
    assert world.truth()["paid"] == world.truth()["paid_cut_off"] == paid


def test_paying_twice_for_a_key_is_noticed_but_not_after_a_cut_off_answer():
    world, _ = make(processing_share=0, query={"truncate": 1.0})
    verdict(world)
    world.change({"query": {"truncate": 0.0}})
    verdict(world)
    assert world.truth()["paid_again"] == 0
    verdict(world)
    assert world.truth()["paid_again"] == 1


def test_refused_credentials_are_401():
    world, _ = make(auth_refused=True)
    assert played(world.ask(5, 1, "tw")).reply.status == 401


def test_two_queries_of_one_key_at_once_are_seen():
    world, _ = make()
    with world.ask(5, 1, "tw"), world.ask(5, 2, "tw"):
        assert world.truth()["concurrent_same_key_max"] == 1
        with world.ask(5, 1, "tw"):
            pass
    summary = world.truth()
    assert summary["concurrent_same_key_max"] == 2
    assert summary["queries_in_flight_max"] == 3


def test_the_age_of_a_first_and_of_a_later_query_are_told_apart():
    world, clock = make(rate=1)
    clock.seconds = 10
    offer = world.hand_out(1)[0]
    for seconds in (110, 210):
        clock.seconds = seconds
        played(world.ask(offer.shop_id, offer.item_id, offer.country))
    summary = world.truth()
    assert summary["first_query_age_max"] == pytest.approx(START + 110 - offer.created, abs=0.01)
    assert summary["later_query_age_max"] == pytest.approx(START + 210 - offer.created, abs=0.01)


# receiver


def some_offer(**changes: object):
    world, clock = make(rate=1, **changes)
    clock.seconds = 10
    return world, clock, world.hand_out(1)[0]


def test_a_callback_within_300_seconds_is_on_time_and_a_second_one_is_twice():
    world, clock, offer = some_offer()
    clock.seconds = offer.created - START + 299
    assert deliver(world, offer).reply.status == 200
    deliver(world, offer)
    summary = world.truth()
    assert (summary["delivered"], summary["on_time"], summary["late"], summary["twice"]) == (1, 1, 0, 1)


def test_a_callback_after_300_seconds_is_late():
    world, clock, offer = some_offer()
    clock.seconds = offer.created - START + 301
    deliver(world, offer)
    assert world.truth()["late"] == 1


def test_a_callback_again_after_a_cut_off_answer_is_not_called_twice():
    world, _, offer = some_offer(callback={"truncate": 1.0})
    deliver(world, offer)
    world.change({"callback": {"truncate": 0.0}})
    deliver(world, offer)
    summary = world.truth()
    assert (summary["delivered"], summary["twice"], summary["again_after_cut"]) == (1, 0, 1)


def test_a_callback_that_fails_delivers_nothing():
    world, _, offer = some_offer(callback={"error": 1.0})
    assert deliver(world, offer).reply.verdict is Verdict.FAULT
    assert world.truth()["delivered"] == 0
    assert world.truth()["undelivered"] == 1


def test_a_caller_who_hangs_up_before_the_answer_has_delivered_nothing():
    world, _, offer = some_offer()
    with world.receive(f"tok-{offer.trace_id}", page_url(offer), b"{}"):
        pass
    assert world.truth()["delivered"] == 0


def test_an_unknown_token_and_the_token_of_another_ticket_are_told_apart():
    world, _, offer = some_offer()
    assert played(world.receive("tok-none", page_url(offer), b"{}")).reply.verdict is Verdict.REJECTED
    played(world.receive("Bearer", page_url(offer), b"{}"))
    played(world.receive(f"tok-{offer.trace_id}", "https://shopee.tw/?shop_id=1&item_id=2", b"{}"))
    summary = world.truth()
    assert (summary["unknown"], summary["wrong_token"], summary["delivered"]) == (1, 2, 0)


@pytest.mark.parametrize("result", [b"", b"{", b"{]}", b'{"data":{"item":{"itemid":1}}}'])
def test_a_result_that_is_not_the_tickets_page_is_noticed(result):
    world, _, offer = some_offer()
    deliver(world, offer, result)
    assert world.truth()["bad_results"] == 1


def test_the_page_the_provider_sent_is_a_good_result():
    world, _, offer = some_offer(processing_share=0, offline_share=0)
    body = played(world.ask(offer.shop_id, offer.item_id, offer.country)).reply.body
    deliver(world, offer, orjson.dumps(orjson.loads(body)["response"]))
    assert world.truth()["results_checked"] == 1
    assert world.truth()["bad_results"] == 0


# the whole


def test_an_hour_leaves_only_the_last_quarter_in_memory_and_all_in_the_counts():
    world, clock = make(rate=5, processing_share=0)
    for second in range(3600):
        clock.seconds = float(second)
        for offer in world.hand_out(50):
            played(world.ask(offer.shop_id, offer.item_id, offer.country))
            deliver(world, offer)
    summary = world.truth()
    assert summary["delivered"] == summary["handed_out"] > 17_000
    assert summary["remembered"] < 2.2 * 900 * 5
    assert len(world._pages) < 1.2 * 900 * 5


def test_the_same_seed_tells_the_same_story():
    def story() -> list[object]:
        world, clock = make(query={"error": 0.3})
        clock.seconds = 30
        offers = world.hand_out(50)
        return [*offers, *(played(world.ask(o.shop_id, o.item_id, o.country)).reply for o in offers)]

    assert story() == story()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": {"error": 1.5}}, "query.error"),
        ({"query": {"eror": 1}}, "query.eror: unknown field"),
        ({"rate": "fast"}, "rate"),
        ({"speed": 1}, "speed: unknown field"),
        ({"query": 3}, "query: must be an object"),
        ({"order": "random"}, "order"),
        ({"page_min": 2000, "page_max": 1000}, "page_min"),
    ],
)
def test_a_bad_change_names_its_field_and_changes_nothing(changes, message):
    world, _ = make()
    before = world.behaviour
    with pytest.raises(ConfigError, match=message):
        world.change(changes)
    assert world.behaviour is before


def test_a_bad_behaviour_is_refused_at_the_start():
    async def main(clock) -> None:
        World(clock, Behaviour(query=End(hang=2)))

    with pytest.raises(ConfigError, match=r"query\.hang"):
        run_virtual(main)
