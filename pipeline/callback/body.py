"""The callback's body: the answer's bytes as a JSON string inside JSON, with as little copying as can be.

JSON text has no raw control characters inside its strings, so only `"` and `\\` need escaping, and line
breaks where the provider pretty-prints. Whether that or `orjson.dumps(text)` is faster depends on the
answer; measured on 100 KB product pages, see `json_string`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from pipeline.config import CallbackConfig
from pipeline.ticket import Ticket

_RESULT = "$result"
_MARK = "\ue000result\ue000"


def json_string(text: bytes) -> bytes:
    """JSON bytes as a JSON string literal. Bytes that are not UTF-8 become replacement characters."""
    try:
        return orjson.dumps(str(text, "utf-8"))
    except (UnicodeDecodeError, orjson.JSONEncodeError):
        return orjson.dumps(text.decode("utf-8", "replace"))


class BodyMaker:
    def __init__(self, config: CallbackConfig) -> None:
        self._page_url = config.page_url
        self._template: Mapping[str, Any] = config.body

    def make(self, ticket: Ticket, result: bytes) -> bytes:
        filled = {name: self._value(value, ticket) for name, value in self._template.items()}
        head, _, tail = orjson.dumps(filled).partition(orjson.dumps(_MARK))
        return b"".join((head, json_string(result), tail))

    def _value(self, value: Any, ticket: Ticket) -> Any:
        if value == _RESULT:
            return _MARK
        if value == "$page_url":
            return self._page_url.format_map(_Blank(ticket.payload))
        if isinstance(value, str) and value.startswith("$"):
            return ticket.payload.get(value[1:], "")
        return value


class _Blank(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return ""
