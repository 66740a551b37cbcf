"""A Sink over HTTP."""

from __future__ import annotations

import orjson

from pipeline.callback.body import BodyMaker
from pipeline.clock import Clock
from pipeline.config import CallbackConfig
from pipeline.errors import CallFailed
from pipeline.http import Client, HttpClient, Response, retry_after
from pipeline.ticket import Answer, Receipt, Ticket, Verdict

#: A callback's answer is a few bytes; what is larger is not one.
ANSWER_MAX = 1 << 20
CODE_SHOWN = 80


class HttpSink:
    def __init__(
        self, config: CallbackConfig, clock: Clock, pool_size: int, client: type[Client] = HttpClient
    ) -> None:
        self._clock = clock
        self._url = config.url + config.path
        self._success_codes = frozenset(config.success_codes)
        self._client = client(pool_size + 2, ANSWER_MAX)
        self._maker = BodyMaker(config)

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        headers = {"Authorization": f"Bearer {ticket.token}", "Content-Type": "application/json"}
        body = self._maker.make(ticket, answer.body)
        try:
            reply = await self._client.call("POST", self._url, timeout, headers=headers, body=body)
        except CallFailed as error:
            return Receipt(Verdict.FAULT, str(error), trouble=error.trouble)
        return self._read(reply)

    def _read(self, reply: Response) -> Receipt:
        status = reply.status
        if status in (408, 429) or status >= 500:
            return Receipt(Verdict.FAULT, f"HTTP {status}", retry_after(reply.headers, self._clock.now()))
        if not 200 <= status < 300:
            return Receipt(Verdict.REJECTED, f"HTTP {status}")
        code = _business_code(reply.body)
        if code is not None and code not in self._success_codes:
            return Receipt(Verdict.REJECTED, f"code {code}"[:CODE_SHOWN])
        return Receipt(Verdict.ANSWERED)


def _business_code(body: bytes | bytearray) -> int | str | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    code = document.get("code") if isinstance(document, dict) else None
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) < 19:
        return int(code)
    return code if code is None or (isinstance(code, int | str) and not isinstance(code, bool)) else str(code)
