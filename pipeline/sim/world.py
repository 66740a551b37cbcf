"""The outside world: state and decisions, no sockets. Two fronts show it: `server` (HTTP) and `ports`."""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from pipeline.clock import Clock
from pipeline.sim.behaviour import Behaviour, End, changed
from pipeline.sim.pages import PageMaker
from pipeline.sim.reply import Break, Call, Reply
from pipeline.sim.truth import KEEP, TOKEN, Truth
from pipeline.sim.upstream import Offer, Upstream
from pipeline.ticket import Verdict

LATENCY_MAX = 20.0  # times the median: the tail of a log-normal has no end, a test must
PROCESSING, PROVIDER_ERROR, CREDIT, GONE = 1100002, 1000000, 1070102, 1100004
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"
CUT_OFF = frozenset({Break.TRUNCATE, Break.SLOW})  # it happened, but the caller cannot know
NO_TASKS = b'{"success":true,"tasks":[]}'
ACCEPTED = b'{"code":200,"data":{"code":"SUCCESS"}}'


@dataclass(slots=True)
class Page:
    """What the provider knows of a key."""

    asked: float
    ready_at: float
    offline: bool


class World:
    def __init__(self, clock: Clock, behaviour: Behaviour, seed: int = 1, name: str = "sim") -> None:
        self.clock = clock
        self.behaviour = changed(behaviour, {})
        self.ledger = Truth(clock)
        self._rng = random.Random(f"{name}:{seed}")
        self._seed = seed
        self._upstream = Upstream(clock, self._rng, name)
        self._pages: OrderedDict[str, Page] = OrderedDict()
        self._maker: PageMaker | None = None
        self._credits = behaviour.credits
        self._tokens = behaviour.capacity or 0.0
        self._tokens_at = clock.monotonic()
        self._free_at = clock.monotonic()

    # what scenarios and operators do

    def change(self, changes: Mapping[str, Any]) -> None:
        self.behave(changed(self.behaviour, changes))

    def behave(self, new: Behaviour) -> None:
        old, self.behaviour = self.behaviour, new
        self._upstream.arrive(old)  # what came before the change came at the old rate
        if new.rate != old.rate:
            self._upstream.rate_changed()
        if new.credits != old.credits:
            self._credits = new.credits
        if (new.page_min, new.page_max) != (old.page_min, old.page_max):
            self._maker = None
        if new.capacity != old.capacity:
            self._tokens = new.capacity or 0.0
            self._free_at = self.clock.monotonic()

    # upstream

    def pulling(self, limit: int) -> Call:
        """One pull; the front calls `hand_out` after `happen()` if the verdict is ANSWERED."""
        self.ledger.counts["pulls"] += 1
        end = self.behaviour.pull
        delay = self._latency(end)
        if self.behaviour.pull_refused:
            return Call(_refused(delay))
        reply = self._broken(end, delay, NO_TASKS) or Reply(delay, 200, Verdict.ANSWERED)
        if reply.broken in CUT_OFF:
            return Call(reply, effect=lambda: self._lose(limit))
        return Call(reply)

    def hand_out(self, limit: int) -> list[Offer]:
        """At most `limit` tickets, and at most upstream's own cap."""
        behaviour = self.behaviour
        count = behaviour.pull_cap if behaviour.ignore_limit else min(limit, behaviour.pull_cap)
        offers = self._upstream.take(max(0, count), behaviour)
        for offer in offers:
            page = (str(offer.shop_id), str(offer.item_id))
            self.ledger.handed_out(offer.trace_id, offer.key, page, offer.created)
        return offers

    def volume(self) -> int:
        return self.ledger.counts["handed_out"]

    # provider

    def ask(self, shop_id: object, item_id: object, country: str) -> Call:
        key = f"{shop_id}:{item_id}:{country}"
        reply = self._query_reply(key, shop_id, item_id, country)
        ledger = self.ledger
        return Call(
            reply,
            effect=lambda: self._charge(key, reply),
            begin=lambda: ledger.query_begins(key),
            end=lambda: ledger.query_ends(key),
        )

    def credits_left(self) -> float:
        return 1_000_000.0 if self._credits is None else self._credits

    # receiver of callbacks

    def receive(self, token: str, url: str, result: bytes, *, escaped: bool = False) -> Call:
        """`result` is the text of the callback's "result", or with `escaped` still the JSON string of it.

        The token alone says which ticket it is for.
        """
        end = self.behaviour.callback
        delay = self._latency(end)
        reply = self._broken(end, delay, ACCEPTED) or Reply(delay, 200, Verdict.ANSWERED, ACCEPTED)
        if reply.status == 200 and reply.broken is None:
            # A receiver that answers 200 has taken the result, however odd the rest of its answer.
            reply = self._judged(replace(reply, verdict=Verdict.ANSWERED), token, url)
        return Call(
            reply,
            effect=lambda: self._accept(reply, token, result, escaped),
            begin=self.ledger.callback_begins,
            end=self.ledger.callback_ends,
        )

    def truth(self) -> dict[str, Any]:
        """The truth so far."""
        self.ledger.counts["lost_upstream"] = self._upstream.forgotten
        return {**self.ledger.summary(), "backlog": len(self._upstream), "credits": self.credits_left()}

    # decisions

    def _query_reply(self, key: str, shop_id: object, item_id: object, country: str) -> Reply:
        end = self.behaviour.query
        delay = self._latency(end)
        if self.behaviour.auth_refused:
            return _refused(delay)
        if self._credits is not None and self._credits < 1:
            return _said(delay, 400, Verdict.CREDIT, CREDIT, "credit is used up")
        rejected, wait = self._overloaded(delay)
        if rejected is not None:
            return rejected
        delay += wait
        broken = self._broken(end, delay)
        if broken is not None and broken.broken not in CUT_OFF:
            return broken
        whole = self._whole_reply(delay, key, shop_id, item_id, country)
        if broken is None or not whole.verdict.is_result:
            return whole
        return Reply(delay, whole.status, Verdict.FAULT, whole.body, {}, broken.broken, broken.detail)

    def _whole_reply(self, delay: float, key: str, shop_id: object, item_id: object, country: str) -> Reply:
        if self._chance(self.behaviour.provider_error_share):
            return _said(delay, 400, Verdict.PROVIDER_ERROR, PROVIDER_ERROR, "internal error")
        page = self._page(key)
        if self.clock.monotonic() < page.ready_at:
            return _said(delay, 400, Verdict.PROCESSING, PROCESSING, "being processed, try again")
        if page.offline:
            return _gone(delay, key)
        return Reply(delay, 200, Verdict.ANSWERED, self._pages_made().answer(shop_id, item_id, country))

    def _page(self, key: str) -> Page:
        now = self.clock.monotonic()
        page = self._pages.get(key)
        if page is None:
            slow = self._chance(self.behaviour.processing_share)
            ready_at = now + self.behaviour.processing_time if slow else now
            page = self._pages[key] = Page(now, ready_at, self._chance(self.behaviour.offline_share))
            self._forget_pages(now)
        return page

    def _forget_pages(self, now: float) -> None:
        for _ in range(4):
            oldest = next(iter(self._pages.values()))
            if now - oldest.asked <= KEEP:
                return
            self._pages.popitem(last=False)

    def _overloaded(self, delay: float) -> tuple[Reply | None, float]:
        """A rejection, or the seconds to wait in the provider's own queue."""
        capacity = self.behaviour.capacity
        if capacity is None:
            return None, 0.0
        now = self.clock.monotonic()
        if self.behaviour.overload == "queue":
            self._free_at = max(now, self._free_at) + 1 / capacity
            wait = self._free_at - now
            if wait <= self.behaviour.queue_max:
                return None, wait
            self._free_at -= 1 / capacity
            return Reply(delay, 503, Verdict.FAULT, HTML, detail="HTTP 503"), 0.0
        burst = max(1.0, capacity)
        self._tokens = min(burst, self._tokens + (now - self._tokens_at) * capacity)
        self._tokens_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return None, 0.0
        self.ledger.counts["throttled"] += 1
        headers = {"Retry-After": self.behaviour.retry_after}
        body = orjson.dumps({"_success": False, "error": {"code": 429, "message": "too many requests"}})
        return Reply(delay, 429, Verdict.FAULT, body, headers, detail="HTTP 429"), 0.0

    def _broken(self, end: End, delay: float, body: bytes = b"{}") -> Reply | None:
        """The fault whose turn it is, if any."""
        draw = self._rng.random()
        for name in ("error", "hang", "reset", "garbage", "truncate", "slow"):
            share: float = getattr(end, name)
            if draw < share:
                return self._fault(name, delay, body)
            draw -= share
        return None

    def _fault(self, name: str, delay: float, body: bytes) -> Reply:
        if name == "error":
            status = self._rng.choice((500, 502, 503))
            return Reply(delay, status, Verdict.FAULT, HTML, detail=f"HTTP {status}")
        if name == "garbage":
            cut = b'{"_success":true,"response":{"data":{"item":{"title":"\xe7\x8f'
            return Reply(delay, 200, Verdict.FAULT, self._rng.choice((HTML, cut)), detail="not JSON")
        return Reply(delay, 200, Verdict.FAULT, body, broken=Break(name), detail=_BREAKS[name])

    def _judged(self, reply: Reply, token: str, url: str) -> Reply:
        trace = self.ledger.find(token)
        if trace is not None and _names(url, trace.page):
            return reply
        wrong = trace is not None or not token.startswith(TOKEN)
        self.ledger.counts["wrong_token" if wrong else "unknown"] += 1
        self.ledger.note(f"callback with {'a wrong' if wrong else 'an unknown'} token for {url[:150]}")
        body = orjson.dumps({"code": 404, "message": "no such ticket"})
        return Reply(reply.delay, 404, Verdict.REJECTED, body, detail="HTTP 404: no such ticket")

    # effects

    def _lose(self, limit: int) -> None:
        """Handed out, but the answer breaks off: these tickets reach nobody."""
        offers = self._upstream.take(min(limit, self.behaviour.pull_cap), self.behaviour)
        self.ledger.counts["lost_in_pull"] += len(offers)

    def _charge(self, key: str, reply: Reply) -> None:
        self.ledger.counts["processing"] += reply.verdict is Verdict.PROCESSING
        cut_off = reply.broken in CUT_OFF
        if reply.verdict.is_result or cut_off:
            self.ledger.paid(key, cut_off=cut_off)
            if self._credits is not None:
                self._credits = max(0.0, self._credits - 1)

    def _accept(self, reply: Reply, token: str, result: bytes, escaped: bool) -> None:
        cut_off = reply.broken in CUT_OFF
        trace = self.ledger.find(token)
        if trace is not None and (reply.verdict is Verdict.ANSWERED or cut_off):
            cut_off = cut_off or reply.body != ACCEPTED
            self.ledger.check_result(trace, result, escaped)
            self.ledger.delivered(trace, cut_off=cut_off)

    # draws

    def _latency(self, end: End) -> float:
        if not end.latency or not end.sigma:
            return end.latency
        drawn = self._rng.lognormvariate(math.log(end.latency), end.sigma)
        return min(drawn, end.latency * LATENCY_MAX)

    def _chance(self, share: float) -> bool:
        return share > 0 and self._rng.random() < share

    def _pages_made(self) -> PageMaker:
        if self._maker is None:
            self._maker = PageMaker(self._seed, self.behaviour.page_min, self.behaviour.page_max)
        return self._maker


_BREAKS = {
    "hang": "no answer",
    "reset": "connection reset",
    "truncate": "answer broke off",
    "slow": "answer did not end",
}


def _refused(delay: float) -> Reply:
    body = orjson.dumps({"_success": False, "error": {"code": 401, "message": "unauthorized"}})
    return Reply(delay, 401, Verdict.AUTH, body, detail="HTTP 401")


def _said(delay: float, status: int, verdict: Verdict, code: int, message: str) -> Reply:
    body = orjson.dumps({"_success": False, "error": {"code": code, "message": message}})
    return Reply(delay, status, verdict, body, detail=f"code {code}: {message}")


def _gone(delay: float, key: str) -> Reply:
    """The provider says so in two ways; which one, the key decides."""
    if sum(key.encode()) % 2:
        return _said(delay, 404, Verdict.OFFLINE, GONE, "item not found")
    body = b'{"_success":true,"response":{"data":{"item":null}}}'
    return Reply(delay, 200, Verdict.OFFLINE, body, detail="no item")


def _names(url: str, page: tuple[str, str]) -> bool:
    """The url of a callback is that of its ticket's page."""
    query = f"&{url.partition('?')[2]}&"
    return f"&shop_id={page[0]}&" in query and f"&item_id={page[1]}&" in query
