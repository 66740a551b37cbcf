"""One connection: a request goes out, a response comes in, the next may follow.

The first read of a response goes into a small buffer that all connections share, because it is used up
before the next read begins. From there on a body of known size is received straight into its own memory:
of 100 KB only the first few are copied. libuv reads on without asking the kernel again whether there is more
as long as a read fills its buffer, so the small first read costs one system call and no turn of the loop.
"""

from __future__ import annotations

import asyncio
from typing import cast

from pipeline.errors import BodyTooLarge, CallFailed, Garbled, TimedOut
from pipeline.http.chunks import Chunks
from pipeline.http.head import Head, read_head
from pipeline.http.reply import Response, decoded

HEAD_MAX = 64 * 1024
FIRST_READ = 4 * 1024
#: Chunked bodies and those without a length are copied out of this one.
NEXT_READ = 64 * 1024
_START = b"HTTP/1."


class Connection(asyncio.BufferedProtocol):
    """`usable` says whether another request may be sent once this one has its response."""

    __slots__ = (
        "_body",
        "_chunks",
        "_filled",
        "_first",
        "_head",
        "_heads_size",
        "_loop",
        "_max_body",
        "_method",
        "_next",
        "_pending",
        "_room",
        "_transport",
        "_waiter",
        "closed",
        "heard",
        "idle_since",
        "usable",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, scratch: memoryview, max_body: int) -> None:
        self._loop = loop
        self._max_body = max_body
        self._first = scratch[:FIRST_READ]
        self._next = scratch
        self._room = self._first
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[Response] | None = None
        self._method = ""
        self._pending = bytearray()  # a head whose end has not come yet
        self._heads_size = 0
        self._head: Head | None = None
        self._body = bytearray()
        self._filled = 0
        self._chunks: Chunks | None = None
        self.closed = loop.create_future()
        self.usable = False
        self.heard = False  # a byte of this response came in
        self.idle_since = 0.0

    # -- the pool's side ---------------------------------------------------------------------------

    async def exchange(
        self, method: str, request: tuple[bytes, bytes], deadline: float, timeout: float
    ) -> Response:
        """One request and its response. However it fails, the connection is gone with it."""
        waiter: asyncio.Future[Response] = self._loop.create_future()
        self._waiter = waiter
        self._method = method
        self.heard = False
        if request[1]:
            self._transport.writelines(request)
        else:
            self._transport.write(request[0])
        timer = self._loop.call_at(deadline, self._expire, timeout)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            timer.cancel()
            self._waiter = None
            # A failed call's error knows this frame. If the frame still knew the error, the two of them would
            # keep the request's 100 KB until the collector comes by.
            del waiter

    def abort(self) -> None:
        self.usable = False
        self._transport.abort()

    def is_quiet(self) -> bool:
        """Nothing half-sent: a server may answer before it has read the whole request."""
        return self.usable and not self._transport.get_write_buffer_size()

    # -- the transport's side ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.usable = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        # No name for it here: an error raised below knows this frame, see `exchange`.
        if self._waiter is None or self._waiter.done():
            # Nobody asked: whatever this is, it must not become the answer to the next request.
            self.abort()
            return
        self.heard = True
        try:
            self._received(nbytes)
        except CallFailed as error:
            self._fail(error)

    def eof_received(self) -> None:
        # Returning nothing closes the transport; until then nobody may be given this connection.
        self.usable = False
        self._ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._ended(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    # -- a response, piece by piece ----------------------------------------------------------------

    def _received(self, size: int) -> None:
        head = self._head
        if head is None:
            self._read_head(bytes(self._first[:size]))
        elif head.length is not None:
            self._filled += size
            if self._filled == head.length:
                self._finish(head, self._body)
            else:
                self._room = self._room[size:]
        else:
            self._read_unsized(head, bytes(self._next[:size]))

    def _read_head(self, data: bytes) -> None:
        if self._pending or b"\r\n\r\n" not in data:
            seen = max(0, len(self._pending) - 3)
            self._pending += data
            if not self._head_is_whole(seen):
                return
            data = bytes(self._pending)
            self._pending.clear()
        end = data.index(b"\r\n\r\n") + 4
        self._heads_size += end
        head = read_head(data[:end], self._method == "HEAD")
        rest = data[end:]
        if head.status >= 200:
            self._begin_body(head, rest)
        elif head.status == 101 or self._heads_size > HEAD_MAX:
            raise Garbled("an interim answer that was not asked for")
        elif rest:
            self._read_head(rest)

    def _head_is_whole(self, seen: int) -> bool:
        pending = self._pending
        if not pending.startswith(_START[: len(pending)]):
            raise Garbled("the answer's head is not HTTP")
        if pending.find(b"\r\n\r\n", seen) >= 0:
            return True
        if len(pending) > HEAD_MAX:
            raise Garbled(f"the answer's head is over {HEAD_MAX} bytes")
        return False

    def _begin_body(self, head: Head, rest: bytes) -> None:
        length = head.length
        if length is None:
            self._head = head
            self._room = self._next
            self._chunks = Chunks(self._max_body) if head.chunked else None
            if rest:
                self._read_unsized(head, rest)
        elif length > self._max_body:
            raise BodyTooLarge(f"body of {length} bytes is over {self._max_body}")
        elif len(rest) >= length:
            if len(rest) > length:
                self.usable = False
            self._finish(head, rest[:length])
        else:
            self._head = head
            self._body = bytearray(length)
            self._body[: len(rest)] = rest
            self._filled = len(rest)
            self._room = memoryview(self._body)[len(rest) :]

    def _read_unsized(self, head: Head, data: bytes) -> None:
        chunks = self._chunks
        if chunks is None:
            self._body += data
            if len(self._body) > self._max_body:
                raise BodyTooLarge(f"body is over {self._max_body} bytes")
            return
        chunks.feed(data)
        if chunks.complete:
            if chunks.rest:
                self.usable = False
            self._finish(head, chunks.body)

    def _finish(self, head: Head, body: bytes | bytearray) -> None:
        self._head = self._chunks = None
        self._room = self._first
        self._body = bytearray()
        self._heads_size = 0
        if not head.keep_alive:
            self.usable = False
        encoding = head.headers.get("content-encoding", "")
        if encoding:
            body = decoded(body, encoding, self._max_body)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(Response(head.status, head.headers, body))

    # -- ends --------------------------------------------------------------------------------------

    def _ended(self, error: Exception | None) -> None:
        """The other side is gone. What may end with the connection is whole now, the rest is broken."""
        head = self._head
        if head is not None and head.length is None and not head.chunked and error is None:
            self.usable = False
            try:
                self._finish(head, self._body)
            except CallFailed as failure:
                self._fail(failure)
            return
        when = "amid" if self.heard else "before"
        kind = f" ({type(error).__name__})" if error is not None else ""
        self._fail(Garbled(f"the connection broke {when} the answer{kind}"))

    def _expire(self, timeout: float) -> None:
        self._fail(TimedOut(f"no answer within {timeout:.1f} s"))

    def _fail(self, error: CallFailed) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
            self.abort()
