"""A Provider over HTTP."""

from __future__ import annotations

from typing import Any

import orjson

from pipeline.clock import Clock
from pipeline.config import QueryConfig
from pipeline.errors import BodyTooLarge, CallFailed, Garbled, TimedOut
from pipeline.http import Client, HttpClient, retry_after
from pipeline.query.reading import AnswerReader
from pipeline.ticket import Answer, Ticket, Verdict

SIDE_CALL_TIMEOUT = 10.0


class HttpProvider:
    def __init__(
        self, config: QueryConfig, clock: Clock, pool_size: int, client: type[Client] = HttpClient
    ) -> None:
        self._config = config
        self._clock = clock
        self._url = config.url + config.path
        self._client = client(pool_size + 2, config.max_body)
        self._reader = AnswerReader(config)
        self._authorization = {"Authorization": f"Bearer {config.token.get_secret_value()}"}
        self._template = [_hole(name, value, config) for name, value in config.body.items()]
        self._headers = self._authorization | {"Content-Type": "application/json"}

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def query(self, ticket: Ticket, timeout: float) -> Answer:
        body = orjson.dumps(self._fill(ticket))
        try:
            reply = await self._client.call("POST", self._url, timeout, headers=self._headers, body=body)
        except CallFailed as error:
            # An answer that broke off, was too large or never came may have been paid for all the same.
            maybe_paid = isinstance(error, Garbled | TimedOut | BodyTooLarge)
            return Answer(Verdict.FAULT, detail=str(error), maybe_paid=maybe_paid, trouble=error.trouble)
        wait = retry_after(reply.headers, self._clock.now()) if "Retry-After" in reply.headers else None
        return self._reader.read(reply.status, reply.body, wait)

    def _fill(self, ticket: Ticket) -> dict[str, Any]:
        payload = ticket.payload
        return {
            name: value if key is None else payload.get(key, value) for name, key, value in self._template
        }

    async def credits(self) -> float | None:
        url = self._config.url + self._config.credits_path
        try:
            reply = await self._client.call("GET", url, SIDE_CALL_TIMEOUT, headers=self._authorization)
            document = orjson.loads(reply.body)
        except (CallFailed, orjson.JSONDecodeError):
            return None
        if reply.status != 200 or not isinstance(document, dict) or document.get("_success") is not True:
            return None
        return _balance(document.get("credits"))


def _balance(entries: Any) -> float | None:
    if not isinstance(entries, list) or not entries:
        return None
    balance = 0.0
    for entry in entries:
        amount = entry.get("credit") if isinstance(entry, dict) else None
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            return None
        balance += amount
    return balance


def _hole(name: str, value: Any, config: QueryConfig) -> tuple[str, str | None, Any]:
    """A field of the query, the part of the ticket that fills it, and what stands there otherwise."""
    if not isinstance(value, str) or not value.startswith("$"):
        return name, None, value
    return name, value[1:], config.language if value == "$language" else ""
