"""Alerts to a WeCom group robot.

The listener only puts an alert in the outbox; `run` sends. Nothing here can slow the pipeline down, and
nothing that goes wrong here is worth more than a log line: the same events are in the log and the panel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import orjson
import structlog

from pipeline.alerts.digest import Message, Outbox
from pipeline.alerts.window import Window
from pipeline.alerts.wording import Alert, Edge, Wording, cut
from pipeline.clock import Clock
from pipeline.config import WecomConfig
from pipeline.errors import CallFailed
from pipeline.events import Bus, Event, Kind, Level
from pipeline.logs import register_secret
from pipeline.texts import Texts

Post = Callable[[str, dict[str, str], bytes, float], Awaitable[tuple[int, bytes]]]

TIMEOUT = 10.0
TRIES_MAX = 5
BACK_OFF = 2.0
BACK_OFF_MAX = 60.0
RATE_LIMIT_PAUSE = 60.0
#: A trouble with no end to report is told again only after this long.
REPEAT_AFTER = 600.0
KEYS_MAX = 1000

WRONG_KEY = 93000
RATE_LIMITED = 45009

log = structlog.get_logger("alerts")


class Fate(Enum):
    SENT = "sent"
    LATER = "later"  # the robot said: too many
    FAILED = "failed"  # may work next time
    REFUSED = "refused"  # the key is wrong: nothing will ever work


@dataclass(frozen=True, slots=True)
class Attempt:
    fate: Fate
    why: str = ""


class WecomAlerts:
    def __init__(self, config: WecomConfig, texts: Texts, clock: Clock, bus: Bus, post: Post) -> None:
        self._config = config
        self._texts = texts
        self._clock = clock
        self._bus = bus
        self._post = post
        self._wording = Wording(texts)
        self._outbox = Outbox(texts)
        self._window = Window(config.per_minute)
        # The last place of each minute is kept for a hard stop.
        self._reserve = 1 if config.per_minute > 1 else 0
        self._open: dict[bool, Message | None] = {True: None, False: None}
        self._firing: set[str] = set()
        self._told: dict[str, float] = {}
        self._paused_until = 0.0
        self._wake = asyncio.Event()
        self._key = config.key.get_secret_value()
        self._deaf = not self._key
        register_secret(self._key)
        bus.subscribe(self._hear)

    # What happened → outbox. Called by whoever publishes: must not raise, must not wait.

    def _hear(self, event: Event) -> None:
        if self._deaf:
            return
        try:
            alert = self._wording.read(event)
        except Exception as error:
            log.error("an event could not be worded", kind=str(event.kind), error=type(error).__name__)
            return
        if alert is not None and self._is_news(alert):
            self._outbox.add(alert)
            self._wake.set()

    def _is_news(self, alert: Alert) -> bool:
        """Edges only: what already stands is not told again, what never began does not end."""
        if alert.edge is Edge.ONCE:
            now = self._clock.monotonic()
            if now - self._told.get(alert.key, -REPEAT_AFTER) < REPEAT_AFTER:
                return False
            if len(self._told) >= KEYS_MAX:
                self._told.clear()
            self._told[alert.key] = now
            return True
        if (alert.edge is Edge.FIRE) == (alert.key in self._firing):
            return False
        self._firing ^= {alert.key}
        return True

    # Outbox → robot.

    async def run(self) -> None:
        if self._deaf:
            log.warning("no WeCom key configured: alerts go to the log only")
        while True:
            self._wake.clear()
            delay = await self.run_once()
            await self._sleep_or_wake(delay)

    async def run_once(self) -> float | None:
        """Send everything that may go now. Seconds until more may; None while nothing waits."""
        while (message := self._due()) is not None:
            await self._try(message)
        return self._delay()

    async def flush(self, seconds: float) -> None:
        """At the end of the process: what can still be said in a few seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.run_once()
        except TimeoutError:
            log.warning("alerts were left unsent at shutdown")

    async def send_test(self) -> str:
        return (await self.probe())[1]

    async def probe(self) -> tuple[bool, str]:
        """One test message, now; whether it arrived, and what to tell the operator."""
        if not self._key:
            return False, self._texts.say("alert.test.no_key")
        attempt = await self._call(self._texts.say("alert.test.message"))
        outcome = self._texts.say(f"alert.test.{attempt.fate.value}", why=attempt.why)
        return attempt.fate is Fate.SENT, outcome

    def _due(self) -> Message | None:
        now = self._clock.monotonic()
        if self._deaf or now < self._paused_until:
            return None
        for urgent in (True, False):
            places = self._window.free(now, self._kept_from(urgent))
            if not places:
                continue
            if self._open[urgent] is None:
                self._open[urgent] = self._outbox.take(urgent, places)
            message = self._open[urgent]
            if message is not None and message.due <= now:
                return message
        return None

    def _delay(self) -> float | None:
        now = self._clock.monotonic()
        delays = []
        for urgent in (True, False):
            message = self._open[urgent]
            if message is None and not self._outbox.has(urgent):
                continue
            due = message.due if message is not None else now
            place = self._window.opens_in(now, self._kept_from(urgent))
            delays.append(max(place, due - now, self._paused_until - now, 0.0))
        return min(delays, default=None)

    def _kept_from(self, urgent: bool) -> int:
        return 0 if urgent else self._reserve

    async def _try(self, message: Message) -> None:
        attempt = await self._call(message.text)
        message.tries += 1
        if attempt.fate is Fate.SENT:
            self._close(message)
        elif attempt.fate is Fate.REFUSED:
            self._give_up_for_good()
        elif message.tries >= TRIES_MAX:
            log.error("an alert was dropped", tries=message.tries, why=attempt.why)
            self._close(message)
            self._forget(message)
        else:
            self._put_off(message, attempt)

    def _put_off(self, message: Message, attempt: Attempt) -> None:
        now = self._clock.monotonic()
        message.due = now + min(BACK_OFF * 2 ** (message.tries - 1), BACK_OFF_MAX)
        if attempt.fate is Fate.LATER:
            self._paused_until = now + RATE_LIMIT_PAUSE
        log.warning("an alert was not sent, will try again", tries=message.tries, why=attempt.why)

    def _close(self, message: Message) -> None:
        for urgent, open_message in self._open.items():
            if open_message is message:
                self._open[urgent] = None

    def _forget(self, message: Message) -> None:
        """Nobody was told of these: their end must not be told either, and they may fire anew."""
        for key in message.opens:
            if not self._outbox.forget(key):
                self._firing.discard(key)

    def _give_up_for_good(self) -> None:
        self._deaf = True
        self._outbox.clear()
        self._open = {True: None, False: None}
        detail = {"channel": "wecom", "error": self._texts.say("alert.wrong_key", code=WRONG_KEY)}
        self._bus.publish(Event(self._clock.now(), "", Kind.ALERT, Level.ERROR, detail=detail))

    async def _call(self, text: str) -> Attempt:
        """One call, judged. Only the kind of an error is kept: its message may name the address and key."""
        try:
            async with asyncio.timeout(TIMEOUT + 1):
                status, body = await self._post(
                    self._config.url, {"key": self._key}, self._body(text), TIMEOUT
                )
        except (CallFailed, TimeoutError, OSError) as error:
            return Attempt(Fate.FAILED, type(error).__name__)
        except Exception as error:
            log.error("the alert call itself is broken", error=type(error).__name__)
            return Attempt(Fate.FAILED, type(error).__name__)
        finally:
            self._window.enter(self._clock.monotonic())
        return _judge(status, body)

    def _body(self, text: str) -> bytes:
        content: dict[str, object] = {"content": cut(text)}
        if self._config.mention:
            content["mentioned_list"] = list(self._config.mention)
        return orjson.dumps({"msgtype": "text", "text": content})

    async def _sleep_or_wake(self, delay: float | None) -> None:
        waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._wake.wait())]
        if delay is not None:
            waiting.append(asyncio.ensure_future(self._clock.sleep(delay)))
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


def _judge(status: int, body: bytes) -> Attempt:
    """The robot says "no" with status 200 and a code of its own."""
    try:
        answer = orjson.loads(body)
        code = answer.get("errcode") if isinstance(answer, dict) else None
    except orjson.JSONDecodeError:
        code = None
    if code == WRONG_KEY:
        return Attempt(Fate.REFUSED, f"errcode {code}")
    if code == RATE_LIMITED:
        return Attempt(Fate.LATER, f"errcode {code}")
    if status == 200 and code == 0:
        return Attempt(Fate.SENT)
    return Attempt(Fate.FAILED, f"HTTP {status}" if code is None else f"errcode {code}")
