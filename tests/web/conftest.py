from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

# The fake is a module of this folder, and this folder is no package.
sys.path.insert(0, str(Path(__file__).parent))

from fake_daemon import FakeDaemon

from pipeline.config import WebConfig
from pipeline.web.app import WebServer

Serve = Callable[..., Awaitable[aiohttp.ClientSession]]


@pytest.fixture
def daemon() -> FakeDaemon:
    return FakeDaemon()


@pytest.fixture
async def serve(daemon: FakeDaemon) -> AsyncIterator[Serve]:
    """Serve the fake over a real socket; the answer is a client session bound to it."""
    async with AsyncExitStack() as stack:

        async def start(**config: Any) -> aiohttp.ClientSession:
            server = WebServer(daemon, WebConfig(port=0, **config))
            await server.start()
            stack.push_async_callback(server.close)
            session = aiohttp.ClientSession(f"http://127.0.0.1:{server.port}")
            return await stack.enter_async_context(session)

        yield start


@pytest.fixture
async def http(serve: Serve) -> aiohttp.ClientSession:
    return await serve()
