"""The WebSocket feed: everything is computed and serialised once a second for all clients together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import orjson
import structlog
from aiohttp import WSCloseCode, WSMsgType, hdrs, web

from pipeline.errors import BadRequest, CommandError
from pipeline.events import Event, Step
from pipeline.web.access import NEEDS_AUTH, AccessRules
from pipeline.web.client import Client
from pipeline.web.commands import Verb, execute, read_command
from pipeline.web.daemon import Daemon, whole_status
from pipeline.web.history import History
from pipeline.web.replies import dumps, error_body, error_reply

CLIENTS_MAX = 32
MESSAGE_MAX = 64 * 1024
HEARTBEAT = 30.0
AUTH_TIMEOUT = 5.0
AUTH_FAILED = 4401
PERIOD = 1.0
STEPS_PER_PERIOD = 50
#: Of every stage of every lane, and of all: a quiet lane's are not pushed out by those of busy ones.
STEPS_OF_A_STAGE = 40
STEPS_IN_HELLO = 1200
EVENTS_IN_HELLO = 100
#: How long a client that floods waits for each refusal: its socket fills up, not our loop.
FLOOD_PAUSE = 0.05
ID_MAX = 128

VERBS = {
    "startPulling": Verb.RESUME,
    "stopPulling": Verb.PAUSE,
    "startScheduler": Verb.START,
    "stopScheduler": Verb.STOP,
    "shutdown": Verb.SHUTDOWN,
}

log = structlog.get_logger()


class StepSampler:
    """The latest steps, with a fair share for every stage: 500 queries must not hide one callback."""

    def __init__(self) -> None:
        self._by_stage: dict[tuple[str, str], deque[Step]] = {}

    def add(self, step: Step) -> None:
        key = (step.lane, step.stage)
        kept = self._by_stage.get(key)
        if kept is None:
            kept = self._by_stage[key] = deque(maxlen=STEPS_PER_PERIOD)
        kept.append(step)

    def take(self) -> list[Step]:
        """At most STEPS_PER_PERIOD, oldest first; begins afresh."""
        chosen = list(self._round_robin())
        self._by_stage.clear()
        return sorted(chosen, key=lambda step: step.at)

    def _round_robin(self) -> Iterator[Step]:
        left = STEPS_PER_PERIOD
        while left and any(self._by_stage.values()):
            for kept in self._by_stage.values():
                if kept and left:
                    left -= 1
                    yield kept.pop()


class Feed:
    def __init__(self, daemon: Daemon, rules: AccessRules) -> None:
        self._daemon = daemon
        self._rules = rules
        self._clients: set[Client] = set()
        self._strangers: dict[web.WebSocketResponse, asyncio.Transport | None] = {}
        self._history = History()
        self._steps = StepSampler()
        self._unsubscribe: list[Callable[[], None]] = []
        self._ticking_fails = False
        self._closing = False

    @property
    def client_count(self) -> int:
        return len(self._clients)

    async def run(self) -> None:
        """Once a second until cancelled; a second lost to a blocked loop is not made up for."""
        forget = self._daemon.bus.subscribe(self._on_event)
        clock = self._daemon.clock
        due = clock.monotonic()
        try:
            while True:
                due = max(due + PERIOD, clock.monotonic())
                await clock.sleep(due - clock.monotonic())
                self.run_once()
        finally:
            forget()

    def run_once(self) -> None:
        try:
            status = whole_status(self._daemon)
            self._history.add(status)
            if self._clients:
                self._broadcast(status)
            self._ticking_fails = False
        except Exception:
            # A lane that cannot say how it is must not end the feed; said once, not every second.
            if not self._ticking_fails:
                log.exception("statistics could not be sent")
            self._ticking_fails = True

    def _broadcast(self, status: Mapping[str, Any]) -> None:
        stats = _message("stats", status)
        steps = self._steps.take()
        tickets = _message("ticket", [step.as_dict() for step in steps]) if steps else None
        for client in self._clients:
            client.outbox.put_stats(stats)
            if tickets is not None:
                client.outbox.put_tickets(tickets)

    def _on_event(self, event: Event) -> None:
        if not self._clients:
            return
        try:
            payload = _message("event", event.as_dict())
        except TypeError:
            # The publisher is a stage at work: it must not fail because a panel cannot be told.
            log.exception("event could not be sent", kind=str(event.kind))
            return
        for client in self._clients:
            client.send(payload)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if len(self._clients) >= CLIENTS_MAX or self._closing:
            return error_reply(503, "too_many_clients", f"at most {CLIENTS_MAX} clients at a time")
        socket = web.WebSocketResponse(
            timeout=1.0, heartbeat=HEARTBEAT, compress=False, max_msg_size=MESSAGE_MAX
        )
        if not socket.can_prepare(request):
            return error_reply(426, "upgrade_required", "this is a WebSocket", {hdrs.UPGRADE: "websocket"})
        # Until its first message a connection counts here, so that strangers cannot fill the clients' places.
        self._make_room_for_a_stranger()
        self._strangers[socket] = request.transport
        try:
            await socket.prepare(request)
            known = await self._introduce(socket, request)
        finally:
            self._strangers.pop(socket, None)
        if known:
            await self._serve(Client(socket, request, self._daemon.clock))
        return socket

    def _make_room_for_a_stranger(self) -> None:
        """Whoever knows the token says it at once: the one that has said nothing for longest must go."""
        if len(self._strangers) >= CLIENTS_MAX:
            longest = next(iter(self._strangers))
            transport = self._strangers.pop(longest)
            if transport is not None:
                transport.abort()

    async def _introduce(self, socket: web.WebSocketResponse, request: web.Request) -> bool:
        if request.get(NEEDS_AUTH, False) and not await self._token_arrives(socket):
            await _close(socket, AUTH_FAILED)
            return False
        if len(self._clients) >= CLIENTS_MAX or self._closing:
            await _close(socket, WSCloseCode.TRY_AGAIN_LATER)
            return False
        return True

    async def _token_arrives(self, socket: web.WebSocketResponse) -> bool:
        try:
            async with asyncio.timeout(AUTH_TIMEOUT):
                message = await socket.receive()
        except TimeoutError:
            return False
        if message.type is not WSMsgType.TEXT:
            return False
        return self._rules.token_matches(message.data) or self._rules.token_matches(_token(message.data))

    async def _serve(self, client: Client) -> None:
        if not self._joins(client):
            await client.hang_up(WSCloseCode.INTERNAL_ERROR)
            return
        tasks = [asyncio.create_task(self._read_on(client)), asyncio.create_task(client.write_on())]
        try:
            code = await client.until_over()
        except asyncio.CancelledError:
            code = WSCloseCode.GOING_AWAY
            raise
        finally:
            self._leave(client)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.hang_up(code)

    def _joins(self, client: Client) -> bool:
        # No await between the snapshot and the membership: nothing is missed and nothing told twice.
        try:
            client.send(_message("hello", self._hello()))
        except Exception:
            # The connection is a WebSocket by now: an error can no longer be answered as HTTP.
            log.exception("panel could not be greeted", client=client.who)
            return False
        if not self._clients:
            self._unsubscribe = [lane.on_step(self._steps.add) for lane in self._daemon.lanes.values()]
        self._clients.add(client)
        return True

    def _leave(self, client: Client) -> None:
        self._clients.discard(client)
        if not self._clients:
            for unsubscribe in self._unsubscribe:
                unsubscribe()
            self._unsubscribe = []
            self._steps.take()

    def _hello(self) -> dict[str, Any]:
        daemon = self._daemon
        steps = chain.from_iterable(lane.recent_steps() for lane in daemon.lanes.values())
        status = whole_status(daemon)
        return {
            **status,  # as in `stats`: whoever reads those can read this
            "status": status,
            "events": [event.as_dict() for event in daemon.bus.recent(EVENTS_IN_HELLO)],
            "steps": [step.as_dict() for step in _latest(steps)],
            "history": self._history.as_dict(),
        }

    async def _read_on(self, client: Client) -> None:
        try:
            async for message in client.socket:
                if not client.flood.admits():
                    await self._refuse_flood(client)
                    continue
                client.send(await self._answer(client, message.data))
            client.drop(WSCloseCode.OK)
        except Exception:
            log.exception("panel connection failed", client=client.who)
            client.drop(WSCloseCode.INTERNAL_ERROR)

    async def _refuse_flood(self, client: Client) -> None:
        client.send(_ack(None, error_body("too_many_requests", "too many commands a second")))
        if client.flood.hopeless:
            log.warning("panel dropped: it floods", client=client.who)
            client.drop(WSCloseCode.POLICY_VIOLATION)
        await asyncio.sleep(FLOOD_PAUSE)

    async def _answer(self, client: Client, text: str | bytes) -> bytes:
        """Carry out one message; whatever is wrong with it is said in the ack."""
        identity: str | int | float | None = None
        try:
            fields = _read_message(text)
            identity = _identity(fields)
            await self._obey(client, fields)
        except CommandError as error:
            return _ack(identity, error_body(error.code, str(error)))
        except Exception:
            log.exception("panel command failed", client=client.who)
            return _ack(identity, error_body("internal_error", "internal error"))
        return _ack(identity)

    async def _obey(self, client: Client, fields: dict[str, Any]) -> None:
        kind = fields.pop("type", None)
        if kind == "auth":
            return  # a panel may show its token where none is needed
        if kind != "command":
            raise BadRequest('type must be "command"')
        name, lane = fields.pop("command", None), fields.pop("lane", None)
        verb = VERBS.get(name) if isinstance(name, str) else None
        if verb is None:
            raise BadRequest(f"command must be one of {', '.join(VERBS)}")
        if lane is not None and not isinstance(lane, str):
            raise BadRequest("lane must be a name, or absent for all lanes")
        await execute(self._daemon, read_command(verb, client.who, lane, fields))

    async def close(self) -> None:
        """Every client is told that we are going."""
        self._closing = True
        for client in tuple(self._clients):
            client.drop(WSCloseCode.GOING_AWAY)
        for socket in tuple(self._strangers):
            await _close(socket, WSCloseCode.GOING_AWAY)


def _latest(steps: Iterable[Step]) -> list[Step]:
    """Of every stage of every lane the same number, oldest first."""
    stages: dict[tuple[str, str], list[Step]] = {}
    for step in sorted(steps, key=lambda step: step.at):
        stages.setdefault((step.lane, step.stage), []).append(step)
    share = min(STEPS_OF_A_STAGE, max(1, STEPS_IN_HELLO // max(1, len(stages))))
    chosen = [step for kept in stages.values() for step in kept[-share:]]
    return sorted(chosen, key=lambda step: step.at)[-STEPS_IN_HELLO:]


async def _close(socket: web.WebSocketResponse, code: int) -> None:
    with suppress(TimeoutError, ConnectionError, RuntimeError):
        async with asyncio.timeout(AUTH_TIMEOUT):
            await socket.close(code=code)


def _message(kind: str, data: Any) -> bytes:
    return dumps({"type": kind, "data": data})


def _ack(identity: str | int | float | None, error: dict[str, str] | None = None) -> bytes:
    data: dict[str, Any] = {"id": identity, "ok": error is None}
    if error is not None:
        data["error"] = error
    return dumps({"type": "ack", "id": identity, "data": data})


def _read_message(text: str | bytes) -> dict[str, Any]:
    if not isinstance(text, str):
        raise BadRequest("a message must be text")
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadRequest("the message is not JSON") from None
    if not isinstance(fields, dict):
        raise BadRequest("a message must be a JSON object")
    return fields


def _token(text: str) -> str:
    """Of `{"type":"auth","token":…}`; empty, which is nobody's, where there is none."""
    try:
        fields = _read_message(text)
    except BadRequest:
        return ""
    token = fields.get("token")
    return token if fields.get("type", "auth") == "auth" and isinstance(token, str) else ""


def _identity(fields: dict[str, Any]) -> str | int | float | None:
    value = fields.pop("id", None)
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and len(value) <= ID_MAX:
        return value
    raise BadRequest(f"id must be a number or text of at most {ID_MAX} characters")
