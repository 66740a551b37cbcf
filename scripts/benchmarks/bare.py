"""The same work with no engine: pull, query, check, call back, as fast as one loop goes.

Client, answer reader and body maker are the daemon's own, so the distance between the two is the engine:
queue, deduplication, stages, gates, counters. What the client itself costs is in both.
Started by the pipeline bench as a process of its own: bare.py <base url> <in flight>.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import orjson
import uvloop

# Run as a file, so the project's root is not where Python looks.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pipeline.callback.body import BodyMaker
from pipeline.config import CallbackConfig, PullConfig, QueryConfig
from pipeline.http import HttpClient
from pipeline.pull.http import TicketReader
from pipeline.query.reading import AnswerReader
from pipeline.ticket import Ticket, Verdict

PULL_LIMIT = 50
TIMEOUT = 60.0
JSON = {"Content-Type": "application/json"}


class Bare:
    def __init__(self, base: str, in_flight: int) -> None:
        pull, query, callback = PullConfig(), QueryConfig(), CallbackConfig()
        self._pull_url = base + pull.path
        self._query_url = base + query.path
        self._callback_url = base + callback.path
        self._tickets = TicketReader(pull)
        self._answers = AnswerReader(query)
        self._bodies = BodyMaker(callback)
        self._in_flight = in_flight
        # One pull brings 50 tickets in about half the time a ticket takes, so this many keep up.
        self._pullers = max(2, in_flight // PULL_LIMIT)
        self._client = HttpClient(in_flight + self._pullers, query.max_body)
        self._stock: asyncio.Queue[Ticket] = asyncio.Queue(in_flight * 2)

    async def run(self) -> None:
        await self._client.open()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._pullers):
                    group.create_task(self._keep_pulling())
                for _ in range(self._in_flight):
                    group.create_task(self._work())
        finally:
            await self._client.close()

    async def _keep_pulling(self) -> None:
        params = {"phone": "13800000000", "limit": str(PULL_LIMIT)}
        while True:
            reply = await self._client.call("GET", self._pull_url, TIMEOUT, params=params)
            for ticket in self._tickets.read(orjson.loads(reply.body)).tickets:
                await self._stock.put(ticket)

    async def _work(self) -> None:
        while True:
            ticket = await self._stock.get()
            await self._deliver(ticket, await self._query(ticket))

    async def _query(self, ticket: Ticket) -> bytes:
        body = orjson.dumps({**ticket.payload, "language": "zh-Hant"})
        headers = {"Authorization": "Bearer bench", **JSON}
        reply = await self._client.call("POST", self._query_url, TIMEOUT, headers=headers, body=body)
        answer = self._answers.read(reply.status, reply.body)
        if answer.verdict is not Verdict.ANSWERED:
            raise ValueError(f"not an answer: {answer.verdict}")
        return answer.body

    async def _deliver(self, ticket: Ticket, result: bytes) -> None:
        body = self._bodies.make(ticket, result)
        headers = {"Authorization": f"Bearer {ticket.token}", **JSON}
        reply = await self._client.call("POST", self._callback_url, TIMEOUT, headers=headers, body=body)
        if orjson.loads(reply.body)["code"] != 200:
            raise ValueError("not delivered")


if __name__ == "__main__":
    uvloop.run(Bare(sys.argv[1], int(sys.argv[2])).run())
