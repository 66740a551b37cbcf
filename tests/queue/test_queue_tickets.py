import pytest
from queue_makers import ticket

from pipeline.config import QueueConfig
from pipeline.queue.ticket_queue import Offer, TicketQueue
from pipeline.sim.virtual import START, VirtualClock, VirtualLoop
from pipeline.ticket import Answer, Ticket, Verdict


@pytest.fixture
def clock():
    loop = VirtualLoop()
    yield VirtualClock(loop)
    loop.close()


def queue_of(clock: VirtualClock, **config: object) -> TicketQueue:
    return TicketQueue(QueueConfig(**config), clock)


def offered(queue: TicketQueue, *traces: str, key: str = "k") -> list[Ticket]:
    tickets = [ticket(key, trace) for trace in traces]
    for one in tickets:
        queue.offer(one)
    return tickets


def test_the_first_of_a_key_is_queued_and_the_second_joins_it(clock: VirtualClock):
    queue = queue_of(clock)
    first, second = ticket(trace="1"), ticket(trace="2")
    assert queue.offer(first) is Offer.QUEUED
    assert queue.offer(second) is Offer.JOINED
    assert first.followers == [second]
    assert (queue.depth, queue.waiting_tickets(), queue.keys_in_flight) == (1, 2, 1)
    assert queue.leader("k") is first


def test_other_keys_do_not_join(clock: VirtualClock):
    queue = queue_of(clock)
    assert queue.offer(ticket("1:2:sg", "1")) is Offer.QUEUED
    assert queue.offer(ticket("1:2:my", "2")) is Offer.QUEUED
    assert queue.depth == 2


def test_with_drop_the_second_of_a_key_is_a_duplicate(clock: VirtualClock):
    queue = queue_of(clock, dedupe="drop")
    (first,) = offered(queue, "1")
    assert queue.offer(ticket(trace="2")) is Offer.DUPLICATE
    assert first.followers == []
    queue.leave(first, delivered=False)
    assert queue.offer(ticket(trace="2")) is Offer.QUEUED


@pytest.mark.parametrize("config", [{"dedupe": "drop"}, {"joined_max": 1}])
def test_one_that_joined_in_an_earlier_run_joins_again_whatever_the_rules_are_now(
    clock: VirtualClock, config: dict[str, object]
):
    queue = queue_of(clock, **config)
    first, joined = ticket(trace="1"), ticket(trace="2")
    assert queue.offer(first, again=True) is Offer.QUEUED
    assert queue.offer(ticket(trace="1"), again=True) is Offer.DUPLICATE
    assert queue.offer(ticket(trace="3")) is Offer.DUPLICATE
    assert queue.offer(joined, again=True) is Offer.JOINED
    assert first.followers == [joined]


def test_the_same_trace_twice_is_a_duplicate_and_gets_no_second_callback(clock: VirtualClock):
    queue = queue_of(clock)
    first, second = offered(queue, "1", "2")
    assert queue.offer(ticket(trace="1")) is Offer.DUPLICATE
    assert queue.offer(ticket(trace="2")) is Offer.DUPLICATE
    assert first.followers == [second]


def test_the_same_trace_of_another_key_is_another_ticket(clock: VirtualClock):
    queue = queue_of(clock)
    offered(queue, "1", key="a")
    assert queue.offer(ticket("b", "1")) is Offer.QUEUED


def test_whoever_comes_after_the_answer_gets_it_at_once(clock: VirtualClock):
    queue = queue_of(clock)
    (first,) = offered(queue, "1")
    first.answer = Answer(Verdict.ANSWERED, b"{}")
    late = ticket(trace="2")
    assert queue.offer(late) is Offer.ANSWERED
    assert late.answer is first.answer
    assert first.followers == []


def test_a_key_is_in_flight_until_the_last_of_its_tickets_has_ended(clock: VirtualClock):
    queue = queue_of(clock)
    first, second = offered(queue, "1", "2")
    queue.leave(first, delivered=True)
    assert queue.keys_in_flight == 1
    queue.leave(second, delivered=True)
    assert queue.keys_in_flight == 0
    assert queue.leader("k") is None


def test_a_delivered_trace_is_a_duplicate_while_others_of_its_key_are_in_flight(clock: VirtualClock):
    queue = queue_of(clock)
    first, second = offered(queue, "1", "2")
    queue.leave(first, delivered=True)
    assert queue.offer(ticket(trace="1")) is Offer.DUPLICATE
    assert queue.offer(ticket(trace="3")) is Offer.JOINED
    queue.leave(second, delivered=False)
    assert queue.offer(ticket(trace="2")) is Offer.JOINED  # it was not delivered: another try is welcome


def test_nothing_is_kept_of_a_key_that_is_free(clock: VirtualClock):
    queue = queue_of(clock, bucket_keys=0)
    for one in offered(queue, "1", "2", "3"):
        queue.leave(one, delivered=True)
    assert (queue._traces, queue._delivered, queue._open) == (set(), {}, {})
    assert queue.offer(ticket(trace="1")) is Offer.QUEUED


def test_delivered_traces_count_among_those_that_may_share_a_key(clock: VirtualClock):
    queue = queue_of(clock, joined_max=3)
    first, _ = offered(queue, "1", "2")
    queue.leave(first, delivered=True)
    offers = [queue.offer(ticket(trace=trace)) for trace in ("3", "4")]
    assert offers == [Offer.JOINED, Offer.DUPLICATE]


def test_a_delivered_key_is_not_asked_again_and_an_undelivered_one_is(clock: VirtualClock):
    queue = queue_of(clock)
    for key, delivered in (("good", True), ("bad", False)):
        (one,) = offered(queue, "1", key=key)
        queue.leave(one, delivered=delivered)
    assert queue.offer(ticket("good", "2")) is Offer.DUPLICATE
    assert queue.offer(ticket("bad", "2")) is Offer.QUEUED


def test_a_thousand_may_share_a_key_and_no_more(clock: VirtualClock):
    queue = queue_of(clock, joined_max=3)
    offers = [queue.offer(ticket(trace=str(n))) for n in range(5)]
    assert offers == [Offer.QUEUED, Offer.JOINED, Offer.JOINED, Offer.DUPLICATE, Offer.DUPLICATE]
    assert QueueConfig().joined_max == 1000


def test_when_the_leader_ends_the_first_that_joined_takes_its_place_in_front(clock: VirtualClock):
    queue = queue_of(clock)
    offered(queue, "x", key="other")
    first, second, third = offered(queue, "1", "2", "3")
    taken = [queue.line.take(), queue.line.take()]
    assert taken[1] is first
    first.queries, first.faults, first.crashes = 3, 2, 1
    heir = queue.promote(first)
    queue.leave(first, delivered=False)
    assert heir is second
    assert (second.followers, first.followers) == ([third], [])
    assert (second.queries, second.faults, second.crashes) == (3, 2, 1)
    assert queue.leader("k") is second
    assert queue.line.take() is second
    assert queue.offer(ticket(trace="4")) is Offer.JOINED
    assert [one.trace_id for one in second.followers] == ["3", "4"]


def test_a_leader_without_followers_has_no_heir(clock: VirtualClock):
    queue = queue_of(clock)
    (first,) = offered(queue, "1")
    queue.line.take()
    assert queue.promote(first) is None
    assert queue.depth == 0


def test_the_oldest_age_is_that_of_the_oldest_waiting(clock: VirtualClock):
    queue = queue_of(clock)
    assert queue.oldest_age() == 0.0
    for number, age in enumerate((10.0, 70.0, 30.0)):
        queue.offer(ticket(str(number), created=START - age))
    assert queue.oldest_age() == 70.0
