"""Puts the control endpoint together and serves it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from pipeline.config import WebConfig
from pipeline.web.access import AccessRules, errors_as_json, guard, set_headers
from pipeline.web.control import BODY_MAX, Control
from pipeline.web.daemon import Daemon
from pipeline.web.feed import Feed
from pipeline.web.metrics import Metrics
from pipeline.web.openapi import describe
from pipeline.web.records import Records
from pipeline.web.replies import json_reply
from pipeline.web.wording import TEXTS_ROUTE, send_texts

STATIC = Path(__file__).parent / "static"
#: For requests that are being answered when the endpoint closes.
SHUTDOWN_TIMEOUT = 3.0

FEED = web.AppKey("feed", Feed)


def build_app(daemon: Daemon, web_config: WebConfig) -> web.Application:
    rules = AccessRules(web_config)
    feed = Feed(daemon, rules)
    metrics = Metrics(daemon, lambda: feed.client_count)
    app = web.Application(middlewares=[errors_as_json, guard(rules)], client_max_size=BODY_MAX)
    app[FEED] = feed
    app.add_routes(Control(daemon).routes())
    app.add_routes(Records(daemon).routes())
    app.add_routes(
        [
            web.get("/metrics", metrics.handle),
            web.get("/openapi.json", _openapi),
            web.get("/ws", feed.handle, allow_head=False),
            web.get("/", _panel),
            web.get(TEXTS_ROUTE, send_texts),
            web.static("/static", STATIC),
        ]
    )
    app.on_response_prepare.append(set_headers)
    app.on_shutdown.append(_close_feed)
    app.cleanup_ctx.append(_run_feed)
    return app


async def _panel(request: web.Request) -> web.FileResponse:
    return web.FileResponse(STATIC / "index.html")


async def _openapi(request: web.Request) -> web.Response:
    return json_reply(describe())


async def _close_feed(app: web.Application) -> None:
    await app[FEED].close()


async def _run_feed(app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(app[FEED].run(), name="web feed")
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


class _WithoutRequestText(logging.Filter):
    """aiohttp logs a malformed request with the line it could not read, and that may be the token's."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.exc_info = record.exc_text = None
            record.msg = f"malformed request: {record.msg}"
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


_http_log = logging.getLogger("pipeline.web.http")
_http_log.addFilter(_WithoutRequestText())


class WebServer:
    """Listens from start() to close(). An address that is taken is an OSError of start()."""

    def __init__(self, daemon: Daemon, web_config: WebConfig) -> None:
        self._config = web_config
        # No access log: a line per request would hold addresses with whatever was typed into them.
        self._runner = web.AppRunner(
            build_app(daemon, web_config),
            access_log=None,
            logger=_http_log,
            shutdown_timeout=SHUTDOWN_TIMEOUT,
        )

    @property
    def port(self) -> int:
        """The port that is listened on, also when the configured one is 0."""
        addresses = self._runner.addresses
        return int(addresses[0][1]) if addresses else self._config.port

    async def start(self) -> None:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._config.host, self._config.port).start()
        except BaseException:
            await self._runner.cleanup()
            raise

    async def close(self) -> None:
        await self._runner.cleanup()
