"""The outside world of the benches: upstream, provider and callback in one cheap HTTP/1.1 server.

It must never be the limit, so it does as little as it can: answers are built before the first request,
callback bodies are counted and thrown away in one shared buffer, and there is no framework. One process is
enough: it takes a twentieth of the time that the fastest runner takes for the same tickets. Everything a
bench knows about throughput comes from the counters here, not from what a runner says about itself.

Stands alone (no import from its neighbours) because it runs as a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import ssl
import sys
import time
from collections.abc import Callable
from datetime import datetime
from itertools import count
from typing import cast
from zoneinfo import ZoneInfo

import uvloop

PULL_CAP = 50
COUNTERS = ("pulls", "tickets", "queries", "callbacks", "callback_bytes", "strays")
SCRATCH_BYTES = 1 << 18
HEAD_LIMIT = 1 << 16
SHANGHAI = ZoneInfo("Asia/Shanghai")

_TEXT = "正品現貨快速出貨台灣公司貨附發票保固一年歡迎詢問請先聊聊確認庫存與顏色尺寸"


def page(size: int) -> bytes:
    """A product page of exactly `size` bytes, mixed as real ones are: models, images, CJK text."""
    models: list[dict[str, object]] = []
    images: list[str] = []
    attributes: list[dict[str, str]] = []
    item: dict[str, object] = {
        "item_id": 1,
        "title": _TEXT[:12],
        "currency": "TWD",
        "images": images,
        "models": models,
        "attributes": attributes,
        "description": "",
    }
    for n in count():
        models.append(_model(n))
        images.append(f"tw-11134207-7r98o-{n:024x}")
        attributes.append({"name": _TEXT[n % 20 : n % 20 + 4], "value": _TEXT[n % 9 : n % 9 + 8]})
        # A fifth of the page is running text; small pages get one of each and the rest as text.
        if len(_wrapped(item)) > size * 0.8 - 600:
            break
    return _filled(item, size)


def _model(n: int) -> dict[str, object]:
    return {
        "model_id": 90_000_000_000 + n,
        "name": f"{_TEXT[n % 30 : n % 30 + 5]},{n}",
        "price": 19_900_000 + n,
        "stock": n % 97,
        "sold": None,
        "extinfo": {"tier_index": [n % 5, n % 7], "is_pre_order": False},
    }


def _wrapped(item: dict[str, object]) -> bytes:
    answer = {"_success": True, "response": {"data": {"item": item}}}
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def _filled(item: dict[str, object], size: int) -> bytes:
    room = size - len(_wrapped(item))
    if room < 0:
        raise ValueError(f"a page needs more than {size} bytes")
    item["description"] = (_TEXT * (room // 3 // len(_TEXT) + 1))[: room // 3] + "." * (room % 3)
    return _wrapped(item)


def response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class World:
    """What the server knows: its prebuilt answers, its counters and the next ticket's number."""

    def __init__(self, page_size: int) -> None:
        self.pulls = self.tickets = self.queries = self.callbacks = self.callback_bytes = self.strays = 0
        self.last_pull = 0.0
        self.answer = response("200 OK", page(page_size))
        self.delivered = response("200 OK", b'{"code":200,"data":{"code":"SUCCESS"}}')
        self.volume = response("200 OK", b'{"status":200,"data":0}')
        self.credits = response("200 OK", b'{"_success":true,"credits":[{"credit":1000000}]}')
        self.not_found = response("404 Not Found", b'{"error":"no such path"}')
        #: The first callback as it came: a bench reads it to see that the runner did the whole work.
        self.sample: bytes | None = None
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        # Real ids have this many digits, and the key's length is part of what a runner carries.
        self._numbers = count(10_000_000_000)
        self._stamp = (0, b"")

    def pull(self, target: bytes) -> bytes:
        limit = min(_limit(target), PULL_CAP)
        self.pulls += 1
        self.last_pull = time.monotonic()
        self.tickets += limit
        stamp = self._now()
        tickets = b",".join([_ticket(next(self._numbers), stamp) for _ in range(limit)])
        return response("200 OK", b'{"success":true,"tasks":[' + tickets + b"]}")

    def query(self) -> bytes:
        self.queries += 1
        return self.answer

    def callback(self, body_bytes: int) -> bytes:
        self.callbacks += 1
        self.callback_bytes += body_bytes
        return self.delivered

    def stray(self) -> bytes:
        self.strays += 1
        return self.not_found

    def counted(self) -> bytes:
        # The reader's clock is the same (CLOCK_MONOTONIC), so a late answer does not bend the rate.
        numbers = {name: getattr(self, name) for name in COUNTERS}
        moments = {"at": time.monotonic(), "last_pull": self.last_pull}
        return response("200 OK", json.dumps(moments | numbers).encode())

    def sampled(self) -> bytes:
        return self.not_found if self.sample is None else response("200 OK", self.sample)

    def _now(self) -> bytes:
        second = int(time.time())
        if self._stamp[0] != second:
            local = datetime.fromtimestamp(second, SHANGHAI)
            self._stamp = (second, local.strftime("%Y-%m-%d %H:%M:%S").encode())
        return self._stamp[1]


def _limit(target: bytes) -> int:
    value = target.partition(b"limit=")[2].partition(b"&")[0]
    return int(value) if value.isdigit() else 1


def _ticket(number: int, stamp: bytes) -> bytes:
    return (
        b'{"type":"shopee","data":{"id":%d,"shop_id":"%d","good_id":"%d","country":"tw","trace_id":"trace-%d",'
        b'"type":"pdp","created_at":"%b","token":"token-%d"}}'
    ) % (number, number % 99_991, number, number, stamp, number)


class Connection(asyncio.BufferedProtocol):
    """One keep-alive connection. Pipelined requests are answered in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._head = bytearray()
        self._body_left = 0
        self._body_size = 0
        self._kept: bytearray | None = None
        self._route: Callable[[], bytes] = world.stray

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _hint: int) -> memoryview:
        # Shared by all connections: what is read is used up before the next read begins.
        return self._world.scratch

    def buffer_updated(self, size: int) -> None:
        data = self._world.scratch[:size]
        while data:
            data = self._eat_body(data) if self._body_left else self._eat_head(data)

    def _eat_body(self, data: memoryview) -> memoryview:
        taken = min(self._body_left, len(data))
        if self._kept is not None:
            self._kept += data[:taken]
        self._body_left -= taken
        if not self._body_left:
            self._answer()
        return data[taken:]

    def _eat_head(self, data: memoryview) -> memoryview:
        before = len(self._head)
        self._head += data
        end = self._head.find(b"\r\n\r\n", max(0, before - 3))
        if end < 0:
            if len(self._head) > HEAD_LIMIT:
                self._transport.close()
            return data[:0]
        head = bytes(self._head[:end])
        self._head.clear()
        self._begin(head)
        return data[end + 4 - before :]

    def _begin(self, head: bytes) -> None:
        line, _, fields = head.partition(b"\r\n")
        method, _, rest = line.partition(b" ")
        self._body_left = self._body_size = _content_length(fields)
        if self._body_size < 0:
            self._transport.write(response("411 Length Required", b""))
            self._transport.close()
            return
        self._kept = None
        self._choose(method, rest.partition(b" ")[0])
        if not self._body_left:
            self._answer()

    def _choose(self, method: bytes, target: bytes) -> None:
        world = self._world
        path = target.partition(b"?")[0]
        if method == b"POST" and path == b"/request/shopee/pdp":
            self._route = world.query
        elif method == b"POST" and path == b"/api/task/submit/v2":
            if world.sample is None:
                self._kept = bytearray()
            self._route = lambda: world.callback(self._body_size)
        elif method == b"GET" and path == b"/api/get/tasks":
            self._route = lambda: world.pull(target)
        else:
            self._route = _ASIDE.get((method, path), World.stray).__get__(world)

    def _answer(self) -> None:
        if self._kept is not None:
            self._world.sample = bytes(self._kept)
            self._kept = None
        self._transport.write(self._route())


#: Paths that are not in the hot path.
_ASIDE: dict[tuple[bytes, bytes], Callable[[World], bytes]] = {
    (b"GET", b"/counts"): World.counted,
    (b"GET", b"/sample"): World.sampled,
    (b"GET", b"/api/curnum"): lambda world: world.volume,
    (b"GET", b"/tokens/credits"): lambda world: world.credits,
}


def _content_length(fields: bytes) -> int:
    """-1 for a body whose length is not told: a runner that sends chunks is not measured by mistake."""
    lowered = fields.lower()
    if b"transfer-encoding:" in lowered:
        return -1
    at = lowered.find(b"content-length:")
    if at < 0:
        return 0
    return int(lowered[at + 15 :].partition(b"\r\n")[0])


async def listen(world: World, context: ssl.SSLContext | None = None) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: Connection(world), "127.0.0.1", 0, backlog=4096, ssl=context)


def port_of(server: asyncio.Server) -> int:
    return int(server.sockets[0].getsockname()[1])


async def serve(page_bytes: int, cert: str | None) -> None:
    """Until SIGTERM or SIGINT. The ports are the first line on standard output."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    world = World(page_bytes)
    ports = {"plain": port_of(await listen(world))}
    if cert is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert)
        ports["tls"] = port_of(await listen(world, context))
    print(json.dumps(ports), flush=True)
    await ended.wait()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="world", description="The benches' outside world.")
    parser.add_argument("--page-bytes", type=int, default=100_000)
    parser.add_argument("--cert", help="PEM with key and certificate chain; adds a TLS port")
    arguments = parser.parse_args(argv)
    uvloop.run(serve(arguments.page_bytes, arguments.cert))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
