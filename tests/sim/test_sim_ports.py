import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
import pytest

from pipeline.config import SimConfig
from pipeline.errors import ConfigError
from pipeline.sim.behaviour import Behaviour, changed
from pipeline.sim.ports import SimProvider, SimSink, SimSource, sim_ports
from pipeline.sim.virtual import VirtualClock, run_virtual
from pipeline.ticket import Answer, Ticket, Verdict

Ports = tuple[SimSource, SimProvider, SimSink]
STEADY = Behaviour(rate=20, page_min=1000, page_max=1000, processing_share=0, offline_share=0)


def with_ports(
    main: Callable[[VirtualClock, Ports], Coroutine[Any, Any, Any]], scenario: str = "calm", **changes: Any
) -> Any:
    async def run(clock: VirtualClock) -> Any:
        ports = sim_ports("demo", SimConfig(scenario=scenario), clock, changed(STEADY, changes))
        for port in ports:
            await port.open()
        try:
            await clock.sleep(5)
            return await main(clock, ports)
        finally:
            for port in ports:
                await port.close()

    return run_virtual(run)


async def one(source: SimSource) -> Ticket:
    return (await source.pull(1, 10)).tickets[0]


def test_a_ticket_goes_all_the_way_and_the_truth_agrees():
    async def main(clock: VirtualClock, ports: Ports) -> None:
        source, provider, sink = ports
        ticket = await one(source)
        assert ticket.key == "{shop_id}:{item_id}:{country}".format(**ticket.payload)
        assert ticket.token == f"tok-{ticket.trace_id}"
        assert ticket.token not in ticket.payload.values()  # the journal seals a token, not a payload
        assert ticket.stamp is not None
        assert 0 <= clock.now() - ticket.stamp < 7
        answer = await provider.query(ticket, 60)
        assert answer.verdict is Verdict.ANSWERED
        assert orjson.loads(answer.body)["data"]["item"]["itemid"] == ticket.payload["item_id"]
        assert (await sink.deliver(ticket, answer, 60)).verdict is Verdict.ANSWERED
        truth = source.world.truth()
        assert truth["delivered"] == truth["on_time"] == truth["paid"] == truth["results_checked"] == 1
        assert truth["bad_results"] == truth["wrong_token"] == truth["protocol_errors"] == 0
        assert await source.volume() == 1
        assert await provider.credits()

    with_ports(main)


@pytest.mark.parametrize("fault", ["hang", "slow"])
def test_a_call_that_never_ends_is_cut_at_its_timeout(fault):
    async def main(clock: VirtualClock, ports: Ports) -> None:
        source, provider, sink = ports
        ticket = await one(source)
        began = clock.monotonic()
        answer = await provider.query(ticket, 30)
        assert clock.monotonic() - began == pytest.approx(30)
        assert (answer.verdict, answer.detail, answer.maybe_paid) == (Verdict.FAULT, "timed out", True)
        receipt = await sink.deliver(ticket, Answer(Verdict.ANSWERED, b"{}"), 30)
        assert (receipt.verdict, receipt.detail) == (Verdict.FAULT, "timed out")

    with_ports(main, query={fault: 1.0}, callback={fault: 1.0})


@pytest.mark.parametrize("fault", ["error", "reset", "garbage", "truncate"])
def test_a_broken_answer_is_a_fault_without_a_body(fault):
    async def main(_: VirtualClock, ports: Ports) -> None:
        source, provider, _sink = ports
        answer = await provider.query(await one(source), 30)
        assert answer.verdict is Verdict.FAULT
        assert answer.body == b""
        assert answer.maybe_paid is (fault in ("reset", "truncate"))

    with_ports(main, query={fault: 1.0})


def test_a_pull_fails_or_is_refused_without_losing_tickets():
    async def main(clock: VirtualClock, ports: Ports) -> None:
        source = ports[0]
        assert (await source.pull(10, 10)).verdict is Verdict.FAULT
        source.world.change({"pull": {"error": 0.0}, "pull_refused": True})
        assert (await source.pull(10, 10)).verdict is Verdict.AUTH
        source.world.change({"pull_refused": False})
        assert len((await source.pull(10, 10)).tickets) == 10
        assert source.world.truth()["lost_in_pull"] == 0

    with_ports(main, pull={"error": 1.0})


def test_a_pull_that_breaks_off_loses_its_tickets_and_they_are_counted():
    async def main(_: VirtualClock, ports: Ports) -> None:
        source = ports[0]
        assert (await source.pull(10, 10)).verdict is Verdict.FAULT
        truth = source.world.truth()
        assert (truth["lost_in_pull"], truth["handed_out"]) == (10, 0)

    with_ports(main, pull={"truncate": 1.0})


def test_a_throttled_answer_says_when_to_come_again():
    async def main(_: VirtualClock, ports: Ports) -> None:
        source, provider, _sink = ports
        tickets = (await source.pull(5, 10)).tickets
        answers = await asyncio.gather(*(provider.query(ticket, 30) for ticket in tickets))
        throttled = [a for a in answers if a.throttled]
        assert len(throttled) == 4
        assert all((a.verdict, a.retry_after) == (Verdict.FAULT, 3) for a in throttled)

    with_ports(main, capacity=1, retry_after="3")


def test_a_gone_product_is_a_result_with_a_body():
    async def main(_: VirtualClock, ports: Ports) -> None:
        source, provider, sink = ports
        for ticket in (await source.pull(20, 10)).tickets:
            answer = await provider.query(ticket, 30)
            assert answer.verdict is Verdict.OFFLINE
            assert isinstance(orjson.loads(answer.body), dict)
            await sink.deliver(ticket, answer, 30)
        assert source.world.truth()["bad_results"] == 0

    with_ports(main, offline_share=1)


def test_in_the_wrong_zone_every_ticket_looks_eight_hours_old():
    async def main(clock: VirtualClock, ports: Ports) -> None:
        ticket = await one(ports[0])
        assert ticket.stamp is not None
        assert 8 * 3600 <= clock.now() - ticket.stamp < 8 * 3600 + 7

    with_ports(main, "wrong_zone")


def test_the_scenario_runs_from_open_to_close():
    async def run(clock: VirtualClock) -> None:
        source, _, _ = sim_ports("demo", SimConfig(scenario="black_out", rate=3), clock)
        assert source.world.behaviour.rate == 3
        await clock.sleep(100)
        assert source.world.behaviour.query.reset == 0
        await source.open()
        await clock.sleep(61)
        assert source.world.behaviour.query.reset == 1
        await source.close()
        await clock.sleep(1000)
        assert source.world.behaviour.query.reset == 1

    run_virtual(run)


def test_an_unknown_scenario_is_refused_when_the_ports_are_built():
    async def run(clock: VirtualClock) -> None:
        with pytest.raises(ConfigError, match="known:"):
            sim_ports("demo", SimConfig(scenario="nope"), clock)

    run_virtual(run)


def test_two_lanes_with_one_seed_have_different_tickets():
    async def run(clock: VirtualClock) -> None:
        one, _, _ = sim_ports("one", SimConfig(), clock)
        two, _, _ = sim_ports("two", SimConfig(), clock)
        await clock.sleep(5)
        first, second = await one.pull(50, 5), await two.pull(50, 5)
        assert not {t.trace_id for t in first.tickets} & {t.trace_id for t in second.tickets}

    run_virtual(run)
