"""What a provider's answer means, read from its bytes without building objects from them.

An answer is about 100 KB of JSON of which three fields matter. msgspec walks it once, hands back the
`response` object as the bytes it is, and those bytes go into the callback.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from pipeline.config import QueryConfig
from pipeline.http.halves import mended
from pipeline.ticket import Answer, Verdict

_THROTTLE = frozenset({429, 503})
_FAULT_STATUS = frozenset({408, 429})
#: The usual beginning of a response that has an item; saves the second walk.
_HAS_ITEM = re.compile(rb'\s*\{\s*"data"\s*:\s*\{\s*"item"\s*:\s*\{\s*"')


class _Envelope(msgspec.Struct):
    success: Any = msgspec.field(default=None, name="_success")
    response: msgspec.Raw = msgspec.Raw(b"")
    error: Any = None


class _Data(msgspec.Struct):
    item: Any = None


class _Body(msgspec.Struct):
    data: _Data | None = None


_read_envelope = msgspec.json.Decoder(_Envelope).decode
_read_body = msgspec.json.Decoder(_Body).decode


class AnswerReader:
    def __init__(self, config: QueryConfig) -> None:
        self._processing = frozenset(config.processing_codes)
        self._fault = frozenset(config.fault_codes)
        self._credit = frozenset(config.credit_codes)

    def read(self, status: int, body: bytes | bytearray, retry_after: float | None = None) -> Answer:
        """CONTRACT's table, in its order of care: a credit code inside a 429 is `credit`."""
        envelope = _envelope(body)
        code = _code(envelope)
        if code in self._credit or status == 402:
            return Answer(Verdict.CREDIT, detail=f"HTTP {status}, code {code}")
        if code in self._processing:
            return Answer(Verdict.PROCESSING, retry_after=retry_after)
        if code in self._fault:
            return Answer(Verdict.PROVIDER_ERROR, detail=f"code {code}", retry_after=retry_after)
        if status in (401, 403):
            return Answer(Verdict.AUTH, detail=f"HTTP {status}")
        if status in _FAULT_STATUS or status >= 500:
            throttled = status in _THROTTLE
            return Answer(
                Verdict.FAULT, detail=f"HTTP {status}", retry_after=retry_after, throttled=throttled
            )
        if envelope is None:
            return Answer(Verdict.FAULT, detail="not JSON", maybe_paid=status == 200)
        return self._result(status, envelope, body)

    def _result(
        self, status: int, envelope: _Envelope | Mapping[str, Any], body: bytes | bytearray
    ) -> Answer:
        if 300 <= status < 400:
            return Answer(Verdict.FAULT, detail=f"HTTP {status}: redirects are not followed")
        if isinstance(envelope, _Envelope):
            response = bytes(envelope.response)
            if status == 200 and envelope.success is True and _has_item(response):
                return Answer(Verdict.ANSWERED, response)
            if response[:1] == b"{":
                return Answer(Verdict.OFFLINE, response)
        return Answer(Verdict.OFFLINE, bytes(body), detail=f"HTTP {status}")


def _envelope(body: bytes | bytearray) -> _Envelope | Mapping[str, Any] | None:
    """The envelope; an empty mapping for JSON of another shape; None for what is not JSON at all."""
    try:
        return _read_envelope(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_slowly(body)


def _read_slowly(body: bytes | bytearray) -> _Envelope | Mapping[str, Any] | None:
    """What msgspec refuses need not be broken: another shape, or half of an emoji cut off a title.

    And what it takes for another shape need not be JSON: it stops reading "502 Bad Gateway" at the number.
    """
    whole = mended(body)
    try:
        return _read_envelope(whole)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        json.loads(str(whole, "utf-8"), parse_constant=_no_constant, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return {}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _code(envelope: _Envelope | Mapping[str, Any] | None) -> int | None:
    error = envelope.error if isinstance(envelope, _Envelope) else None
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) < 19:
        return int(code)
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _has_item(response: bytes) -> bool:
    if _HAS_ITEM.match(response):
        return True
    try:
        parsed = _read_body(response)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return parsed.data is not None and bool(parsed.data.item)
