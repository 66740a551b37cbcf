"""The proxy itself: what it breaks is broken in just that way, and nothing else is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.faults.fault_proxy import Door, FaultProxy, Faults, fault_proxy

PATIENCE = 20.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
HEAD = ANSWER.index(b"x")


class Echo:
    """Answers every line it gets with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.lines: list[bytes] = []
        self.ended = asyncio.Event()  # a client went away
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while line := await reader.readline():
                self.lines.append(line)
                writer.write(self.answer)
        except OSError:
            pass
        finally:
            writer.close()
            self.ended.set()


class Ends:
    def __init__(self, proxy: FaultProxy, far: Echo) -> None:
        self.proxy = proxy
        self.far = far

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.proxy.port)


@asynccontextmanager
async def ends(answer: bytes = ANSWER) -> AsyncIterator[Ends]:
    far = Echo(answer)
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
    async with asyncio.timeout(PATIENCE), fault_proxy(server.sockets[0].getsockname()[1]) as proxy:
        yield Ends(proxy, far)
    server.close()
    for writer in far.writers:
        writer.transport.abort()


async def asked(ends: Ends, size: int) -> bytes:
    """One line sent, so many bytes of what comes back."""
    reader, writer = await ends.connect()
    writer.write(b"hello\n")
    try:
        return await reader.readexactly(size)
    finally:
        writer.close()


async def test_without_faults_everything_passes_unchanged_both_ways() -> None:
    answer = os.urandom(300_000)
    async with ends(answer) as both:
        assert await asked(both, len(answer)) == answer
        assert both.far.lines == [b"hello\n"]
        assert both.proxy.counts["up"] == 6
        assert both.proxy.counts["down"] == len(answer)


@pytest.mark.parametrize(
    ("faults", "at_least"),
    [
        (Faults(latency=0.3), 0.3),
        (Faults(bandwidth=len(ANSWER) / 0.3), 0.2),
        (Faults(slice_to=100), 0.0),
        (Faults(drip=0.0003), 0.3),
    ],
)
async def test_a_slow_line_is_slow_and_loses_nothing(faults: Faults, at_least: float) -> None:
    async with ends() as both:
        both.proxy.down = faults
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await asked(both, len(ANSWER)) == ANSWER
        # A piece may come in several reads, each a pause of its own: never less than this.
        await both.proxy.until(lambda counts: counts["down"] == len(ANSWER))
        assert loop.time() - began >= at_least


async def test_slices_arrive_one_by_one() -> None:
    async with ends() as both:
        both.proxy.down = Faults(slice_to=10, bandwidth=5000)
        reader, writer = await both.connect()
        writer.write(b"hello\n")
        assert len(await reader.read(1 << 16)) < len(ANSWER)
        writer.close()


async def test_a_reset_at_the_door_reaches_nobody_behind_it() -> None:
    async with ends() as both:
        both.proxy.door = Door.RESET
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError, BrokenPipeError)):
            await asked(both, 1)
        await both.proxy.until(lambda counts: counts["refused"] == 1)
        assert both.far.lines == []
        both.proxy.heal()
        assert await asked(both, len(ANSWER)) == ANSWER


async def test_half_open_takes_the_request_and_says_nothing() -> None:
    async with ends() as both:
        both.proxy.door = Door.HALF_OPEN
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asked(both, 1)
        assert both.proxy.counts["half_open"] == 1
        assert both.far.lines == []


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_a_black_hole_swallows_one_direction_only(direction: str) -> None:
    async with ends() as both:
        setattr(both.proxy, direction, Faults(swallow=True))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await asked(both, 1)
        assert both.far.lines == ([] if direction == "up" else [b"hello\n"])
        assert both.proxy.counts["swallowed"] == (6 if direction == "up" else len(ANSWER))


@pytest.mark.parametrize("in_body", [False, True])
async def test_a_cut_comes_after_exactly_so_many_bytes_and_the_other_end_hears_of_it(in_body: bool) -> None:
    passed = 100 + (HEAD if in_body else 0)
    async with ends() as both:
        both.proxy.down = Faults(close_after=100, in_body=in_body)
        reader, writer = await both.connect()
        writer.write(b"hello\n")
        assert await reader.read() == ANSWER[:passed]  # and then a clean end
        writer.close()
        await both.far.ended.wait()
        both.far.ended.clear()

        both.proxy.down = Faults(reset_after=100, in_body=in_body)
        reader, writer = await both.connect()
        writer.write(b"hello\n")
        # RST may overtake what is still in the buffer, but it is never an end of file.
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()
        await both.far.ended.wait()
        assert both.proxy.counts["closes"] == both.proxy.counts["resets"] == 1
        assert both.proxy.counts["down"] == 2 * passed


async def test_a_body_is_cut_on_a_connection_that_has_served_before_and_only_so_often() -> None:
    async with ends() as both:
        reader, writer = await both.connect()
        writer.write(b"one\n")
        assert await reader.readexactly(len(ANSWER)) == ANSWER
        both.proxy.down = Faults(close_after=10, in_body=True, times=1)
        writer.write(b"two\n")
        assert await reader.read() == ANSWER[: HEAD + 10]
        writer.close()
        assert await asked(both, len(ANSWER)) == ANSWER


async def test_all_connections_can_be_reset_at_once() -> None:
    async with ends() as both:
        reader, writer = await both.connect()
        writer.write(b"one\n")
        await reader.readexactly(len(ANSWER))
        both.proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        writer.close()
        await both.far.ended.wait()
        assert await asked(both, len(ANSWER)) == ANSWER
