"""A request as bytes. What is the same for every call to a URL is made once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from pipeline.errors import CallFailed

#: What every request says. No Accept: the providers answer JSON whatever it says.
COMMON = {"Accept-Encoding": "gzip", "User-Agent": "tidegate"}
#: Above this, head and body are written as two pieces: joining would copy the body once more.
JOIN_MAX = 16 * 1024
_PORTS = {"http": 80, "https": 443}
_PATH_SAFE = "/:@!$&'()*+,;=~%"
#: One look at the whole block: names are tokens, values have no control characters but the tab.
_FIELDS = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")


class Origin(NamedTuple):
    """Where connections lead; those of one origin can stand in for each other."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True)
class Target:
    origin: Origin
    path: str
    query: str
    authority: str  # as in the Host header


@lru_cache(maxsize=64)
def target_of(url: str) -> Target:
    """The parts of a configured URL. Errors do not repeat it: it may hold a secret."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna" if not url.isascii() else "ascii").decode()
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise CallFailed("the URL is not one that can be called") from None
    if not host or parts.username is not None or re.search(r"[\x00-\x20\x7f]", host):
        raise CallFailed("the URL is not one that can be called")
    shown = f"[{host}]" if ":" in host else host
    return Target(
        origin=Origin(host, port, parts.scheme == "https"),
        path=quote(parts.path or "/", safe=_PATH_SAFE),
        query=quote(parts.query, safe=_PATH_SAFE + "?"),
        authority=shown if port == _PORTS[parts.scheme] else f"{shown}:{port}",
    )


@lru_cache(maxsize=64)
def _opening(method: str, url: str) -> tuple[str, str]:
    """The head up to the end of the target, where parameters go, and what follows from there."""
    target = target_of(url)
    line = f"{target.path}?{target.query}" if target.query else target.path
    return f"{method} {line}", f" HTTP/1.1\r\nHost: {target.authority}\r\n{header_lines(COMMON)}"


def header_lines(headers: Mapping[str, str]) -> str:
    """Header fields as they are sent. A line break inside one would begin another."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if not _FIELDS.fullmatch(lines) or lines.count("\n") != len(headers):
        raise CallFailed("a header holds characters that cannot be sent")
    return lines


def request_bytes(
    method: str,
    url: str,
    params: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    body: bytes | None,
) -> tuple[bytes, bytes]:
    """What to write: the head, with the body if that is small, and a large body apart."""
    line, head = _opening(method, url)
    if params:
        line += ("&" if "?" in line else "?") + urlencode(params)
    fields = header_lines(headers) if headers else ""
    if body is None:
        return f"{line}{head}{fields}\r\n".encode(), b""
    whole = f"{line}{head}{fields}Content-Length: {len(body)}\r\n\r\n".encode()
    return (whole, body) if len(body) > JOIN_MAX else (whole + body, b"")
