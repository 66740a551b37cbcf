"""The chunked transfer coding, taken apart as it comes."""

from __future__ import annotations

import re

from pipeline.errors import BodyTooLarge, Garbled

LINE_MAX = 4096
TRAILER_MAX = 64 * 1024
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\x00]*)?")


class Chunks:
    """Feed it what was received; `rest` is what came after the end, once `complete`."""

    __slots__ = ("_line", "_max_body", "_need", "_trailers", "body", "complete", "rest")

    def __init__(self, max_body: int) -> None:
        self._max_body = max_body
        self._line = b""  # the beginning of a line whose end has not come yet
        self._need = -1  # bytes of this chunk still to come, its line break included; -1: a size line is next
        self._trailers = -1  # bytes of trailers seen; -1: still among the chunks
        self.body = bytearray()
        self.complete = False
        self.rest = b""

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self.complete:
            at = self._chunk(data, at) if self._need >= 0 else self._next_line(data, at)
        if self.complete:
            self.rest = data[at:]

    def _chunk(self, data: bytes, at: int) -> int:
        content = self._need - 2
        if content > 0:
            taken = min(content, len(data) - at)
            self.body += memoryview(data)[at : at + taken]
            self._need -= taken
            return at + taken
        wanted = b"\r\n"[-self._need]
        if data[at] != wanted:
            raise Garbled("a chunk is longer than it said")
        self._need = self._need - 1 or -1
        return at + 1

    def _next_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        line = self._line + (data[at:] if end < 0 else data[at : end + 1])
        if len(line) > LINE_MAX:
            raise Garbled("a chunk's size line is too long")
        if end < 0:
            self._line = line
            return len(data)
        self._line = b""
        if not line.endswith(b"\r\n"):
            raise Garbled("a chunk's size line has no proper end")
        if self._trailers < 0:
            self._size(line[:-2])
        else:
            self._trailer(line[:-2])
        return end + 1

    def _size(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise Garbled("a chunk has no size")
        size = int(found[1], 16)
        if len(self.body) + size > self._max_body:
            raise BodyTooLarge(f"body is over {self._max_body} bytes")
        if size:
            self._need = size + 2
        else:
            self._trailers = 0

    def _trailer(self, line: bytes) -> None:
        self._trailers += len(line)
        if self._trailers > TRAILER_MAX:
            raise Garbled("the trailers are too long")
        self.complete = not line
