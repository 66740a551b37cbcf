"""How an answer is written: JSON by orjson, errors always in one shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web


def dumps(data: Any) -> bytes:
    # An event's detail may hold anything: a value that JSON does not know is written as its text.
    return orjson.dumps(data, default=str, option=orjson.OPT_NON_STR_KEYS)


def json_reply(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=dumps(data), status=status, headers=headers, content_type="application/json")


def error_body(code: str, message: str) -> dict[str, str]:
    return {"code": code, "message": message}


def error_reply(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None
) -> web.Response:
    return json_reply({"error": error_body(code, message)}, status, headers)
