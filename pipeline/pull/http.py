"""A Source over HTTP: upstream's ticket list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import count
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from pipeline.clock import Clock
from pipeline.config import PullConfig
from pipeline.errors import CallFailed
from pipeline.http import Client, HttpClient, Response, retry_after
from pipeline.http.halves import mended
from pipeline.ports import Pulled
from pipeline.pull.created import read_created
from pipeline.ticket import Ticket, Verdict

SIDE_CALL_TIMEOUT = 10.0
#: Fields longer than this are nobody's shop, item or country.
FIELD_MAX = 512
TOKEN_MAX = 8192


class HttpSource:
    def __init__(
        self, config: PullConfig, clock: Clock, pool_size: int, client: type[Client] = HttpClient
    ) -> None:
        self._config = config
        self._clock = clock
        self._zone = ZoneInfo(config.timezone)
        self._client = client(pool_size + 2, config.max_body)
        self._reader = TicketReader(config)

    async def open(self) -> None:
        await self._client.open()

    async def close(self) -> None:
        await self._client.close()

    async def pull(self, limit: int, timeout: float) -> Pulled:
        config = self._config
        params = {"phone": config.phone.get_secret_value(), "limit": str(limit)}
        try:
            response = await self._client.call("GET", config.url + config.path, timeout, params=params)
        except CallFailed as error:
            return Pulled(Verdict.FAULT, detail=str(error), trouble=error.trouble)
        return self._read(response)

    def _read(self, response: Response) -> Pulled:
        if response.status in (401, 403):
            return Pulled(Verdict.AUTH, detail=f"HTTP {response.status}")
        if not 200 <= response.status < 300:
            wait = retry_after(response.headers, self._clock.now())
            return Pulled(Verdict.FAULT, detail=f"HTTP {response.status}", retry_after=wait)
        try:
            return self._reader.read(_parsed(response.body))
        except orjson.JSONDecodeError:
            return Pulled(Verdict.FAULT, detail="not JSON")

    async def volume(self) -> int | None:
        config = self._config
        day = datetime.fromtimestamp(self._clock.now(), self._zone).strftime("%Y-%m-%d")
        params = {"phone": config.phone.get_secret_value(), "date": day}
        try:
            response = await self._client.call(
                "GET", config.url + config.volume_path, SIDE_CALL_TIMEOUT, params=params
            )
            document = orjson.loads(response.body)
        except (CallFailed, orjson.JSONDecodeError):
            return None
        if response.status != 200 or not isinstance(document, dict) or document.get("status", 200) != 200:
            return None
        data = document.get("data")
        return data if isinstance(data, int) and not isinstance(data, bool) else None


class TicketReader:
    """Upstream's JSON as tickets; what is not a ticket is counted."""

    def __init__(self, config: PullConfig) -> None:
        self._fields = config.fields
        self._zone = ZoneInfo(config.timezone)
        self._unnamed = count(1)

    def read(self, document: Any) -> Pulled:
        entries = _entries(document)
        if entries is None:
            return Pulled(Verdict.FAULT, detail="not a ticket list")
        tickets = [ticket for entry in entries if (ticket := self._ticket(entry)) is not None]
        undated = sum(ticket.stamp is None for ticket in tickets)
        return Pulled(tickets=tickets, malformed=len(entries) - len(tickets), undated=undated)

    def _ticket(self, entry: Any) -> Ticket | None:
        data = entry.get("data", entry) if isinstance(entry, Mapping) else None
        if not isinstance(data, Mapping):
            return None
        fields = self._fields
        shop, item, country = (data.get(name) for name in (fields.shop_id, fields.item_id, fields.country))
        if not (_is_name(shop) and _is_name(item) and _is_name(country)):
            return None
        token = _token(data.get(fields.token))
        if token is None:
            return None  # its callback could never be sent, so nothing is paid for it
        trace = data.get(fields.trace_id)
        return Ticket(
            key=f"{shop}:{item}:{country}",
            trace_id=str(trace) if _is_name(trace) else f"untraced-{next(self._unnamed)}",
            stamp=read_created(data.get(fields.created_at), self._zone),
            payload={"shop_id": shop, "item_id": item, "country": country},
            token=token,
            priority=_priority(data.get(fields.priority)),
        )


def _parsed(body: bytes | bytearray) -> Any:
    """A character that is none must not cost the two hundred tickets around it."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return orjson.loads(mended(body.decode("utf-8", "replace").encode()))


def _token(value: Any) -> str | None:
    """As it goes into a header; none at all is for upstreams that need none."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else str(value) if _is_name(value) else "\n"
    return text if len(text) <= TOKEN_MAX and text.isascii() and text.isprintable() else None


def _priority(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
        return int(value)
    return value if isinstance(value, int) and abs(value) < 1 << 31 else 0


def _is_name(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= FIELD_MAX and "\0" not in value  # no journal could keep it whole
    return isinstance(value, int) and not isinstance(value, bool)


def _entries(document: Any) -> list[Any] | None:
    """The list of entries, empty when upstream says there are none, None when it makes no sense."""
    if not isinstance(document, Mapping):
        return None
    if not document.get("success"):
        return []
    tasks = document.get("tasks")
    if isinstance(tasks, list):
        return tasks
    single = document.get("task")
    return [single] if isinstance(single, Mapping) else []
