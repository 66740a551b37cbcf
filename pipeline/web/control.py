"""The REST handlers."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from pipeline.errors import BadRequest
from pipeline.web.commands import Verb, execute, read_command
from pipeline.web.daemon import ECHO_MAX, Daemon, lanes_named, whole_status, why_not_ready
from pipeline.web.replies import json_reply

BODY_MAX = 64 * 1024
BODY_TIMEOUT = 10.0
EVENTS_DEFAULT = 100
EVENTS_MAX = 1000


class Control:
    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/status", self.status),
            web.get("/api/events", self.events),
            web.get("/livez", self.livez),
            web.get("/readyz", self.readyz),
            *(web.post(f"/api/{verb}", self._command(verb)) for verb in Verb),
        ]

    async def status(self, request: web.Request) -> web.Response:
        query = read_query(request, "lane")
        return json_reply(whole_status(self._daemon, query.get("lane")))

    async def events(self, request: web.Request) -> web.Response:
        query = read_query(request, "lane", "limit")
        lane = query.get("lane")
        lanes_named(self._daemon, lane)
        recent = self._daemon.bus.recent(_limit(query.get("limit")), lane)
        return json_reply({"events": [event.as_dict() for event in recent]})

    async def livez(self, request: web.Request) -> web.Response:
        return json_reply({"alive": True})

    async def readyz(self, request: web.Request) -> web.Response:
        reasons = why_not_ready(self._daemon)
        if not reasons:
            return json_reply({"ready": True})
        error = {"code": "not_ready", "message": "; ".join(reasons)}
        return json_reply({"ready": False, "reasons": reasons, "error": error}, status=503)

    def _command(self, verb: Verb) -> Handler:
        async def handle(request: web.Request) -> web.Response:
            query = read_query(request, "lane")
            fields = await _read_object(request)
            command = read_command(verb, f"api {request.remote}", query.get("lane"), fields)
            return json_reply(await execute(self._daemon, command))

        return handle


def read_query(request: web.Request, *allowed: str) -> dict[str, str]:
    """Refuses what it does not know: a mistyped `?lan=` must not pause every lane."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in allowed:
            raise BadRequest(f"unknown query parameter {name[:ECHO_MAX]!r}")
        if name in found:
            raise BadRequest(f"{name} was given more than once")
        found[name] = value
    return found


def _limit(text: str | None) -> int:
    if text is None:
        return EVENTS_DEFAULT
    # isdigit alone would let other scripts' digits in, and int() signs, spaces and underscores
    plain = text.isascii() and text.isdigit() and len(text) <= 4
    if not plain or not 1 <= int(text) <= EVENTS_MAX:
        raise BadRequest(f"limit must be a whole number from 1 to {EVENTS_MAX}")
    return int(text)


async def _read_object(request: web.Request) -> dict[str, Any]:
    """The body as a JSON object; none at all is an empty one, whatever content type came with it."""
    if request.content_length is not None and request.content_length > BODY_MAX:
        raise web.HTTPRequestEntityTooLarge(BODY_MAX, request.content_length)
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            body = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    if not body:
        return {}
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadRequest("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object")
    return fields
