"""What a call brings back, the same from either client."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from pipeline.errors import BodyTooLarge, Garbled

RETRY_AFTER_MAX = 60.0
_PLAIN = frozenset({"", "identity"})
_COMPRESSED = frozenset({"gzip", "x-gzip", "deflate"})
_GZIP_OR_ZLIB = 47  # zlib's window bits: told from the stream's own header


class Headers(Mapping[str, str]):
    """Response headers by name in any case. Takes over a dict whose names are lower-case."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, str]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __contains__(self, name: object) -> bool:
        # The inherited one raises and catches a KeyError, and headers are asked for what is seldom there.
        return isinstance(name, str) and name.lower() in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


@dataclass(slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes | bytearray


def decoded(body: bytes | bytearray, encoding: str, max_body: int) -> bytes | bytearray:
    """The body without its content encoding, bounded after decompression too."""
    encoding = encoding.strip().lower()
    if encoding in _PLAIN or not body:
        return body
    if encoding not in _COMPRESSED:
        raise Garbled("content encoding that was not asked for")
    inflater = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
    try:
        out = inflater.decompress(body, max_body + 1)
    except zlib.error:
        raise Garbled("compressed body is damaged") from None
    if len(out) > max_body:
        raise BodyTooLarge(f"body is over {max_body} bytes")
    if not inflater.eof:
        raise Garbled("compressed body is cut off")
    return out


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Retry-After in seconds or as a date, clamped to what makes sense within a ticket's life."""
    raw = headers.get("Retry-After", "").strip()
    if not raw:
        return None
    try:
        seconds = float(raw)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(raw).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    if seconds != seconds:  # "nan" reads as a float
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_MAX)
