"""Both clients must behave alike on both loops: uvloop in production, the stock one wherever it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop
from raw_server import Open

from pipeline.http import CLIENTS, Client


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=sorted(CLIENTS))
def kind(request: pytest.FixtureRequest) -> type[Client]:
    return CLIENTS[request.param]


@pytest.fixture
async def open_client(kind: type[Client]) -> AsyncIterator[Open]:
    clients: list[Client] = []

    async def start(pool_size: int = 4, max_body: int = 1 << 20) -> Client:
        client = kind(pool_size, max_body)
        await client.open()
        clients.append(client)
        return client

    yield start
    for client in clients:
        await client.close()


@pytest.fixture
async def client(open_client: Open) -> Client:
    return await open_client()
