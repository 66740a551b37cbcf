"""What the journal remembers: a ticket's steps, and the minutes behind the panel's charts."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, NamedTuple

from aiohttp import web

from pipeline.errors import BadRequest, CommandError, JournalFault
from pipeline.events import Step
from pipeline.journal.journal import Journal
from pipeline.journal.silent import SilentJournal
from pipeline.web.control import read_query
from pipeline.web.daemon import Daemon, lanes_named
from pipeline.web.replies import json_reply

#: As long as upstream's may be.
TRACE_ID_MAX = 512
#: Two of them, each character twelve bytes, must fit into a request's first line of 8,190.
NAME_MAX = 200
#: Of one answer, the newest: a trace that a hundred tickets share could fill megabytes.
STEPS_MAX = 5000
#: Read at a time: answers that wait on disk for their callback are read by the same thread.
READ_SECONDS = 86_400


class Range(NamedTuple):
    seconds: int
    step: int  # a whole share of READ_SECONDS


RANGES = {
    "5m": Range(300, 60),
    "1h": Range(3600, 60),
    "24h": Range(86_400, 300),
    "30d": Range(30 * 86_400, 7200),
}
RANGE_DEFAULT = "1h"


class NotKept(CommandError):
    status = 404
    code = "not_found"


class JournalOff(CommandError):
    status = 404
    code = "journal_off"

    def __init__(self) -> None:
        super().__init__("the journal is off (journal.level), so nothing is kept")


class JournalUnreadable(CommandError):
    status = 503
    code = "journal"


class Records:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def routes(self) -> list[web.RouteDef]:
        return [
            # aiohttp's own pattern would leave out braces
            web.get("/api/trace/{trace_id:[^/]+}", self.trace),
            web.get("/api/traces", self.traces),
            web.get("/api/history", self.history),
        ]

    async def trace(self, request: web.Request) -> web.Response:
        read_query(request)
        trace_id = _name("trace_id", request.match_info["trace_id"], TRACE_ID_MAX)
        told = await self._told(self._journal().trace(trace_id))
        return json_reply({"trace_id": trace_id, **told})

    async def traces(self, request: web.Request) -> web.Response:
        query = read_query(request, "shop", "item")
        shop, item = _name("shop", query.get("shop")), _name("item", query.get("item"))
        told = await self._told(self._journal().trace_item(shop, item))
        return json_reply({"shop": shop, "item": item, **told})

    async def history(self, request: web.Request) -> web.Response:
        query = read_query(request, "lane", "range")
        lane, chosen = _name("lane", query.get("lane")), _range(query.get("range"))
        lanes_named(self._daemon, lane)
        minutes = await self._minutes(self._journal(), lane, chosen)
        return json_reply({"lane": lane, "step": chosen.step, "minutes": minutes})

    def _journal(self) -> Journal:
        journal = self._daemon.journal
        if isinstance(journal, SilentJournal):
            raise JournalOff
        return journal

    async def _told(self, finding: Awaitable[list[Step]]) -> dict[str, Any]:
        try:
            steps = await finding
        except JournalFault as fault:
            raise JournalUnreadable(str(fault)) from None
        if not steps:
            raise NotKept("no such ticket is kept")
        newest = steps[-STEPS_MAX:]
        return {"steps": [step.as_dict() for step in newest], "left_out": len(steps) - len(newest)}

    async def _minutes(self, journal: Journal, lane: str, chosen: Range) -> list[dict[str, Any]]:
        """Whole steps only, so that the first is no smaller than the others; the last is under way."""
        seconds, step = chosen
        until = (int(self._daemon.clock.now()) // step + 1) * step
        found: list[dict[str, Any]] = []
        try:
            for since in range(until - seconds, until, READ_SECONDS):
                found += await journal.history(lane, since, min(until, since + READ_SECONDS), step)
        except JournalFault as fault:
            raise JournalUnreadable(str(fault)) from None
        return found


def _name(field: str, text: str | None, length_max: int = NAME_MAX) -> str:
    if not text:
        raise BadRequest(f"{field} is needed")
    # A byte that is no UTF-8 arrives as half a character, which the database cannot take.
    if len(text) > length_max or any("\ud800" <= char <= "\udfff" for char in text):
        raise BadRequest(f"{field} must be text of at most {length_max} characters")
    return text


def _range(text: str | None) -> Range:
    chosen = RANGES.get(RANGE_DEFAULT if text is None else text)
    if chosen is None:
        raise BadRequest(f"range must be one of {', '.join(RANGES)}")
    return chosen
