"""The head of a response, read strictly: what is not HTTP/1.x is `Garbled`, never guessed at."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pipeline.errors import Garbled
from pipeline.http.reply import Headers

_BLOCK = re.compile(
    r"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n\x00]*)?\r\n"
    r"((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\x00]*\r\n)*)\r\n"
)
_FIELD = re.compile(r"([^:\r\n]+):[ \t]*([^\r\n]*?)[ \t]*\r\n")
_LENGTH = re.compile(r"[0-9]{1,18}")
_BODILESS = frozenset({204, 304})


@dataclass(slots=True)
class Head:
    status: int
    headers: Headers
    #: The announced size of the body; None where it comes in chunks or ends with the connection.
    length: int | None
    chunked: bool
    keep_alive: bool


def read_head(block: bytes | bytearray, asked_by_head: bool = False) -> Head:
    """`block` ends with its blank line. A response to HEAD announces a body that does not come."""
    found = _BLOCK.fullmatch(block.decode("latin-1"))
    if found is None:
        raise Garbled("the answer's head is not HTTP")
    minor, status_text, lines = found.groups()
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(lines):
        name = name.lower()
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    status = int(status_text)
    length, chunked = _framing(fields)
    if status < 200 or status in _BODILESS or asked_by_head:
        length, chunked = 0, False
    return Head(status, Headers(fields), length, chunked, _keeps_alive(minor, fields))


def _framing(fields: dict[str, str]) -> tuple[int | None, bool]:
    length, coding = fields.get("content-length"), fields.get("transfer-encoding")
    if coding is not None:
        # With both, the two ends could disagree on where the answer ends.
        if coding.lower() != "chunked" or length is not None:
            raise Garbled("the answer's framing is not clear")
        return None, True
    if length is None:
        return None, False
    if not _LENGTH.fullmatch(length):
        raise Garbled("the answer's framing is not clear")
    return int(length), False


def _keeps_alive(minor: str, fields: dict[str, str]) -> bool:
    connection = fields.get("connection")
    if connection is None:
        return minor == "1"
    options = {option.strip() for option in connection.lower().split(",")}
    return "close" not in options and (minor == "1" or "keep-alive" in options)
