"""The world as HTTP services on one port, as strict as the real ones: upstream, provider, receiver, WeCom.

What the daemon gets wrong (method, header, field, JSON) is answered 400 and counted as `protocol_errors`.
`/sim/*` is for tests and operators: truth, alerts, behaviour, scenario.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec
import orjson
from aiohttp import web

from pipeline.clock import Clock, SystemClock
from pipeline.errors import BadRequest, ConfigError
from pipeline.sim.behaviour import Behaviour
from pipeline.sim.scenarios import SCENARIOS, Script, find_script, run_scenario
from pipeline.sim.upstream import wire
from pipeline.sim.wire import send
from pipeline.sim.world import World
from pipeline.ticket import Verdict

BODY_MAX = 40 << 20
ALERTS_MAX = 200
ALERTS_PER_MINUTE = 20
ALERT_BYTES_MAX = 2048

T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(msgspec.Struct):
    country: str
    shop_id: int | str
    item_id: int | str
    language: str


class Submitted(msgspec.Struct):
    """`result` stays raw: at 60 MB/s only a sample is worth unescaping."""

    appVersion: str
    url: str
    result: msgspec.Raw


class Text(msgspec.Struct):
    content: str


class Alert(msgspec.Struct):
    msgtype: str
    text: Text


class Service:
    """The handlers, and what they keep besides the world."""

    def __init__(self, world: World, clock: Clock) -> None:
        self.world = world
        self.alerts: deque[dict[str, Any]] = deque(maxlen=ALERTS_MAX)
        self._clock = clock
        self._alerted: deque[float] = deque(maxlen=ALERTS_PER_MINUTE)
        self._scenario: asyncio.Task[None] | None = None
        self.scenario = ""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_MAX, middlewares=[self._strict])
        for method, path, handler in (
            ("GET", "/api/get/tasks", self._tasks),
            ("POST", "/request/shopee/pdp", self._query),
            ("POST", "/api/task/submit/v2", self._submit),
            ("GET", "/api/curnum", self._volume),
            ("GET", "/tokens/credits", self._credits),
            ("POST", "/cgi-bin/webhook/send", self._alert),
            ("GET", "/sim/truth", self._truth),
            ("GET", "/sim/alerts", self._alerts),
            ("GET", "/sim/behaviour", self._behaviour),
            ("POST", "/sim/behaviour", self._behave),
            ("GET", "/sim/scenario", self._scenarios),
            ("POST", "/sim/scenario", self._play),
        ):
            app.router.add_route(method, path, handler)
        return app

    async def play(self, script: Script) -> None:
        """Begin this scenario instead of the one that runs."""
        await self.stop()
        self.scenario = script.name
        self._scenario = asyncio.create_task(run_scenario(self.world, self._clock, script))

    async def stop(self) -> None:
        task, self._scenario = self._scenario, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    @web.middleware
    async def _strict(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except BadRequest as error:
            return self._refuse(request, str(error), 400)
        except ConfigError as error:
            return _json({"error": {"code": "bad_request", "message": str(error)}}, 400)
        except web.HTTPMethodNotAllowed as error:
            allowed = "/".join(sorted(error.allowed_methods))
            return self._refuse(request, f"{request.method} is not allowed, only {allowed}", 400)
        except web.HTTPNotFound:
            return self._refuse(request, "no such path", 404)
        except web.HTTPRequestEntityTooLarge:
            return self._refuse(request, "body too large", 413)

    def _refuse(self, request: web.Request, message: str, status: int) -> web.Response:
        self.world.ledger.protocol_error(f"{request.method} {request.path}: {message}")
        return _json({"error": {"code": "bad_request", "message": message}}, status)

    # upstream

    async def _tasks(self, request: web.Request) -> web.StreamResponse:
        _parameter(request, "phone")
        limit = _parameter(request, "limit")
        if not limit.isascii() or not limit.isdigit() or not 1 <= int(limit) <= 1_000_000:
            raise BadRequest("limit must be a whole number above 0")
        with self.world.pulling(int(limit)) as call:
            await self._clock.sleep(call.reply.delay)
            call.happen()
            if call.reply.verdict is not Verdict.ANSWERED:
                return await send(request, call.reply, self._clock)
            stamp = self.world.behaviour.timestamp
            tasks = [wire(offer, stamp) for offer in self.world.hand_out(int(limit))]
        return _json({"success": True, "tasks": tasks})

    async def _volume(self, request: web.Request) -> web.StreamResponse:
        _parameter(request, "phone")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", _parameter(request, "date")):
            raise BadRequest("date must be YYYY-MM-DD")
        return _json({"status": 200, "data": self.world.volume()})

    # provider

    async def _query(self, request: web.Request) -> web.StreamResponse:
        _bearer(request)
        asked = _decoded(await request.read(), Asked)
        with self.world.ask(asked.shop_id, asked.item_id, asked.country) as call:
            await self._clock.sleep(call.reply.delay)
            call.happen()
            return await send(request, call.reply, self._clock)

    async def _credits(self, request: web.Request) -> web.StreamResponse:
        _bearer(request)
        return _json({"_success": True, "credits": [{"credit": self.world.credits_left()}]})

    # receiver

    async def _submit(self, request: web.Request) -> web.StreamResponse:
        token = _bearer(request)
        submitted = _decoded(await request.read(), Submitted)
        result = bytes(submitted.result)
        if result[:1] != b'"':
            raise BadRequest("result must be a string")
        with self.world.receive(token, submitted.url, result, escaped=True) as call:
            await self._clock.sleep(call.reply.delay)
            call.happen()
            return await send(request, call.reply, self._clock)

    async def _alert(self, request: web.Request) -> web.StreamResponse:
        alert = _decoded(await request.read(), Alert)
        content = alert.text.content
        if not request.query.get("key"):
            return _json({"errcode": 93000, "errmsg": "invalid webhook url"})
        if len(content.encode()) > ALERT_BYTES_MAX:
            raise BadRequest(f"text is longer than {ALERT_BYTES_MAX} bytes")
        errcode = self.world.behaviour.wecom_errcode or self._alert_limit()
        if errcode:
            return _json({"errcode": errcode, "errmsg": "refused"})
        self.world.ledger.counts["alerts"] += 1
        self.alerts.append({"at": round(self._clock.now(), 3), "content": content})
        return _json({"errcode": 0, "errmsg": "ok"})

    def _alert_limit(self) -> int:
        now = self._clock.monotonic()
        if len(self._alerted) == ALERTS_PER_MINUTE and now - self._alerted[0] < 60:
            return 45009
        self._alerted.append(now)
        return 0

    # the simulator's own

    async def _truth(self, _: web.Request) -> web.StreamResponse:
        return _json(self.world.truth())

    async def _alerts(self, _: web.Request) -> web.StreamResponse:
        return _json({"alerts": list(self.alerts)})

    async def _behaviour(self, _: web.Request) -> web.StreamResponse:
        return _json(asdict(self.world.behaviour))

    async def _behave(self, request: web.Request) -> web.StreamResponse:
        self.world.change(_decoded_own(await request.read()))
        return _json(asdict(self.world.behaviour))

    async def _scenarios(self, _: web.Request) -> web.StreamResponse:
        return _json({"name": self.scenario, "known": sorted(SCENARIOS)})

    async def _play(self, request: web.Request) -> web.StreamResponse:
        name = _decoded_own(await request.read()).get("name")
        await self.play(find_script(str(name)))
        return _json({"name": self.scenario})


class SimServer:
    """A running simulator."""

    def __init__(self, service: Service, runner: web.AppRunner, host: str) -> None:
        self._service = service
        self._runner = runner
        self.host = host
        self.world = service.world
        self.alerts = service.alerts
        self.port = int(runner.addresses[0][1])

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def play(self, name: str) -> None:
        await self._service.play(find_script(name))

    async def close(self) -> None:
        await self._service.stop()
        await self._runner.cleanup()


async def serve(
    host: str = "127.0.0.1",
    port: int = 0,
    behaviour: Behaviour | None = None,
    scenario: str = "calm",
    seed: int = 1,
    clock: Clock | None = None,
) -> SimServer:
    """Start the simulator; `port` 0 takes a free one."""
    clock = clock or SystemClock()
    script = find_script(scenario)
    service = Service(World(clock, behaviour or Behaviour(), seed), clock)
    # A client that hangs up ends its call here too: else its next one would look like a second in flight.
    runner = web.AppRunner(service.app(), access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=4096).start()
    except OSError:
        await runner.cleanup()
        raise
    await service.play(script)
    return SimServer(service, runner, host)


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(value), status=status, content_type="application/json")


def _parameter(request: web.Request, name: str) -> str:
    value = request.query.get(name)
    if not value:
        raise BadRequest(f"parameter {name} is missing")
    return value


def _bearer(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not token.strip():
        raise BadRequest("Authorization: Bearer … is missing")
    return token.strip()


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"body: {error}") from None


def _decoded_own(body: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError("body must be an object")
    return value
