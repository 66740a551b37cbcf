"""The world as a lane's three ports, without a wire: for virtual time, demos and tests.

They map as the HTTP ends do; the world's reply already carries the verdict of CONTRACT 1.
"""

from __future__ import annotations

import asyncio
import contextlib

from pipeline.clock import Clock
from pipeline.config import CallbackConfig, SimConfig
from pipeline.errors import ConfigError
from pipeline.ports import Pulled
from pipeline.sim.behaviour import Behaviour
from pipeline.sim.pages import response_of
from pipeline.sim.reply import Break, Call, Reply
from pipeline.sim.scenarios import Script, find_script, run_scenario
from pipeline.sim.truth import TOKEN
from pipeline.sim.upstream import Offer, as_read
from pipeline.sim.world import World
from pipeline.ticket import SIMULATED, Answer, Receipt, Ticket, Verdict

#: A hanging call ends at the caller's time-out; this is the limit where there is none.
HANG = 3600.0
_PAGE_URL: str = CallbackConfig().page_url


class SimSource:
    def __init__(self, world: World, script: Script | None = None) -> None:
        self.world = world
        self._script = script
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        if self._script is not None and self._task is None:
            self._task = asyncio.create_task(run_scenario(self.world, self.world.clock, self._script))

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def pull(self, limit: int, timeout: float) -> Pulled:
        with self.world.pulling(limit) as call:
            if not await _done(call, self.world.clock, timeout):
                return Pulled(Verdict.FAULT, detail="timed out")
            reply = call.reply
            if reply.verdict is not Verdict.ANSWERED:
                return Pulled(reply.verdict, detail=reply.detail, retry_after=reply.retry_after)
            return Pulled(tickets=[self._ticket(offer) for offer in self.world.hand_out(limit)])

    async def volume(self) -> int | None:
        return self.world.volume()

    def _ticket(self, offer: Offer) -> Ticket:
        place = {"shop_id": offer.shop_id, "item_id": offer.item_id, "country": offer.country}
        return Ticket(
            key=offer.key,
            trace_id=offer.trace_id,
            stamp=as_read(offer.created, self.world.behaviour.timestamp),
            payload=place | {SIMULATED: True},
            token=TOKEN + offer.trace_id,
        )


class SimProvider:
    def __init__(self, world: World) -> None:
        self.world = world

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def query(self, ticket: Ticket, timeout: float) -> Answer:
        shop_id, item_id, country = _place(ticket)
        with self.world.ask(shop_id, item_id, country) as call:
            if not await _done(call, self.world.clock, timeout):
                # It was asked and nobody knows how far it came.
                return Answer(Verdict.FAULT, detail="timed out", maybe_paid=True)
            return _answer(call.reply)

    async def credits(self) -> float | None:
        return self.world.credits_left()


class SimSink:
    def __init__(self, world: World) -> None:
        self.world = world

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        shop_id, item_id, country = _place(ticket)
        url = _PAGE_URL.format(shop_id=shop_id, item_id=item_id, country=country)
        with self.world.receive(ticket.token, url, answer.body) as call:
            if not await _done(call, self.world.clock, timeout):
                return Receipt(Verdict.FAULT, detail="timed out")
            reply = call.reply
            return Receipt(reply.verdict, reply.detail, reply.retry_after)


def sim_ports(
    lane_name: str, sim_config: SimConfig, clock: Clock, behaviour: Behaviour | None = None
) -> tuple[SimSource, SimProvider, SimSink]:
    """One world for a lane. Its scenario runs from the source's open() to its close()."""
    try:
        script = find_script(sim_config.scenario)
    except ConfigError as error:
        raise ConfigError(f"sim.{error}") from None
    world = World(clock, behaviour or Behaviour(rate=sim_config.rate), sim_config.seed, lane_name)
    return SimSource(world, script), SimProvider(world), SimSink(world)


async def _done(call: Call, clock: Clock, timeout: float) -> bool:
    """Play the call out; False if the time-out came first."""
    reply = call.reply
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await clock.sleep(reply.delay)
            call.happen()
            if reply.broken in (Break.HANG, Break.SLOW):
                await clock.sleep(HANG)
            return True
    return False


def _place(ticket: Ticket) -> tuple[object, object, str]:
    """As upstream wrote it; a ticket from elsewhere has it in its key."""
    data = ticket.payload
    if "shop_id" in data and "item_id" in data and "country" in data:
        return data["shop_id"], data["item_id"], str(data["country"])
    shop_id, item_id, country = (*ticket.key.split(":"), "", "")[:3]
    return shop_id, item_id, country


def _answer(reply: Reply) -> Answer:
    return Answer(
        verdict=reply.verdict,
        body=_result(reply),
        detail=reply.detail,
        retry_after=reply.retry_after,
        throttled=reply.status == 429,
        maybe_paid=reply.broken in (Break.RESET, Break.TRUNCATE),
    )


def _result(reply: Reply) -> bytes:
    """The `response` object; the whole answer where it has none; nothing where there is no result."""
    if not reply.verdict.is_result:
        return b""
    return response_of(reply.body) if reply.status == 200 else reply.body
