"""`tidegate run` as a process: signals, systemd, exit codes."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from pipeline.sim.truth import TOKEN
from tests.e2e.harness import (
    LANE,
    PATIENCE,
    assert_all_delivered_once,
    eventually,
    lane_tree,
    settings_tree,
    upstream_runs_dry,
    world,
)
from tests.e2e.processes import tidegate, toml


def written(folder: Path, tree: dict[str, Any]) -> str:
    """The configuration file; a rename makes a rewrite appear at once and whole."""
    draft, path = folder / "draft.toml", folder / "config.toml"
    draft.write_text(toml(tree), encoding="utf-8")
    draft.rename(path)
    return str(path)


async def asked(url: str, path: str) -> Any:
    timeout = aiohttp.ClientTimeout(PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout) as http, http.get(url + path) as response:
        return await response.json()


async def config_events(url: str, count: int) -> list[dict[str, Any]]:
    """The first `count` events of a reload, oldest first, once that many have happened."""
    async with asyncio.timeout(PATIENCE):
        while True:
            events = (await asked(url, "/api/events?limit=1000"))["events"]
            found = [event for event in reversed(events) if event["kind"] == "config"]
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


# -- ending --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_under_load_drains_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    slow = {"query": {"latency": 0.2}, "callback": {"latency": 0.2}}
    async with world(rate=200, **slow) as server:
        path = written(tmp_path, settings_tree({LANE: lane_tree(server.url)}))
        async with tidegate("run", "--config", path) as daemon:
            await eventually(lambda: server.world.ledger.counts["delivered"] > 50)
            assert server.world.ledger._queries_open + server.world.ledger._callbacks_open > 0
            daemon.send(number)
            assert await daemon.ended() == 0
            assert "Traceback" not in daemon.everything()
        assert_all_delivered_once(server.world.truth())


async def test_a_second_signal_ends_at_once_and_not_with_0(tmp_path: Path) -> None:
    async with world(rate=50, callback={"hang": 1.0}) as server:
        tree = settings_tree({LANE: lane_tree(server.url)}, daemon={"drain_timeout": 3600})
        async with tidegate("run", "--config", written(tmp_path, tree)) as daemon:
            await eventually(lambda: server.world.ledger._callbacks_open > 5)
            daemon.send(signal.SIGTERM)
            await daemon.says(b'"draining"')
            daemon.send(signal.SIGTERM)
            # The drain would take an hour: only the second signal can end this, and it waits for nothing.
            async with asyncio.timeout(2):
                assert await daemon.ended() == 1
            assert b"second signal" in daemon.out + daemon.err


async def test_shutdown_by_the_api_ends_the_process_with_0(tmp_path: Path) -> None:
    async with world() as server:
        path = written(tmp_path, settings_tree({LANE: lane_tree(server.url)}))
        async with tidegate("run", "--config", path) as daemon:
            url = await daemon.url()
            await eventually(lambda: server.world.ledger.counts["delivered"] > 20)
            async with aiohttp.ClientSession() as http, http.post(f"{url}/api/shutdown") as response:
                assert response.status == 200
                assert (await response.json())["lanes"][LANE]["state"] == "draining"
            assert await daemon.ended() == 0
        assert_all_delivered_once(server.world.truth())


# -- SIGHUP --------------------------------------------------------------------------------------------


async def test_sighup_changes_what_can_change_names_what_cannot_and_a_bad_file_changes_nothing(
    tmp_path: Path,
) -> None:
    async with world() as server:

        def tree(**queue: Any) -> dict[str, Any]:
            return settings_tree({LANE: lane_tree(server.url, queue=queue)})

        path = Path(written(tmp_path, tree(high_water=400)))
        async with tidegate("run", "--config", str(path)) as daemon:
            url = await daemon.url()

            async def high_water() -> int:
                return int((await asked(url, "/api/status"))["lanes"][LANE]["queue"]["high_water"])

            assert await high_water() == 400
            written(tmp_path, tree(high_water=300, bucket_keys=5))
            daemon.send(signal.SIGHUP)
            good = (await config_events(url, 1))[0]
            assert good["level"] == "warning", "somebody must restart it"
            assert good["detail"] == {
                "changed": [f"lanes.{LANE}.queue.high_water"],
                "needs_restart": [f"lanes.{LANE}.queue.bucket_keys"],
            }
            assert await high_water() == 300

            bad = [
                tree(high_water=200, low_water=250),
                tree(high_water="many"),
                tree(hihg_water=200),
                {"lanes": {}},
            ]
            for number, wrong in enumerate(bad, start=2):
                written(tmp_path, wrong)
                daemon.send(signal.SIGHUP)
                event = (await config_events(url, number))[-1]
                assert event["level"] == "error"
                assert list(event["detail"]) == ["error"]
                assert await high_water() == 300
            path.write_text("this is no TOML", encoding="utf-8")  # noqa: ASYNC240
            daemon.send(signal.SIGHUP)
            assert "error" in (await config_events(url, len(bad) + 2))[-1]["detail"]
            path.unlink()  # noqa: ASYNC240
            daemon.send(signal.SIGHUP)
            assert "error" in (await config_events(url, len(bad) + 3))[-1]["detail"]
            assert await high_water() == 300

            written(tmp_path, tree(high_water=350))
            daemon.send(signal.SIGHUP)
            await config_events(url, len(bad) + 4)
            assert await high_water() == 350
            before = server.world.ledger.counts["delivered"]
            await eventually(lambda: server.world.ledger.counts["delivered"] > before + 20)
            await upstream_runs_dry(server)
            daemon.send(signal.SIGTERM)
            assert await daemon.ended() == 0
        assert_all_delivered_once(server.world.truth())


# -- systemd -------------------------------------------------------------------------------------------


@pytest.fixture(params=["path", "abstract"])
def notify(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str]]:
    """systemd's end of the socket, and how NOTIFY_SOCKET names it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = f"{folder}/notify" if request.param == "path" else f"@tidegate-{secrets.token_hex(8)}"
        sock.bind(name.replace("@", "\0", 1))
        sock.setblocking(False)
        yield sock, name


async def test_systemd_hears_ready_alive_and_stopping(
    tmp_path: Path, notify: tuple[socket.socket, str]
) -> None:
    sock, name = notify
    loop = asyncio.get_running_loop()
    heard: list[str] = []

    async def until(message: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while message not in heard:
                heard.extend((await loop.sock_recv(sock, 4096)).decode().splitlines())

    async with world() as server:
        path = written(tmp_path, settings_tree({LANE: lane_tree(server.url)}))
        async with tidegate("run", "--config", path, env={"NOTIFY_SOCKET": name}) as daemon:
            await until("READY=1")
            assert "STOPPING=1" not in heard
            heard.clear()
            for _ in range(3):
                await until("WATCHDOG=1")
                heard.clear()
            daemon.send(signal.SIGTERM)
            await until("STOPPING=1")
            assert "READY=1" not in heard
            assert await daemon.ended() == 0


async def test_a_notify_socket_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    async with world() as server:
        path = written(tmp_path, settings_tree({LANE: lane_tree(server.url)}))
        async with tidegate("run", "--config", path, env={"NOTIFY_SOCKET": "/nowhere/at/all"}) as daemon:
            await eventually(lambda: server.world.ledger.counts["delivered"] > 10)
            daemon.send(signal.SIGTERM)
            assert await daemon.ended() == 0


# -- what cannot start ---------------------------------------------------------------------------------

GOOD = lane_tree("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        (settings_tree({LANE: GOOD}, web={"prot": 1}), "web.prot"),
        (settings_tree({LANE: GOOD}, web={"host": "0.0.0.0"}), "web.token"),
        (settings_tree({LANE: {}}), "pull.url"),
        (settings_tree({LANE: {**GOOD, "source": "no.such.module:Class"}}), "no.such.module"),
        (settings_tree({LANE: {**GOOD, "queue": {"low_water": 900}}}), "low_water"),
        (settings_tree({LANE: {**GOOD, "pull": {**GOOD["pull"], "timezone": "Mars/Base"}}}), "timezone"),
    ],
)
async def test_a_configuration_error_is_one_line_that_names_the_key_and_exit_78(
    tmp_path: Path, tree: dict[str, Any], key: str
) -> None:
    async with tidegate("run", "--config", written(tmp_path, tree)) as daemon:
        assert await daemon.ended() == 78
    assert daemon.out == b""
    line = daemon.err.decode()
    assert line.count("\n") == 1, line
    assert key in line


@pytest.mark.parametrize("content", [None, b"not = toml = at all"])
async def test_a_file_that_cannot_be_read_is_one_line_and_exit_78(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "config.toml"
    if content is not None:
        path.write_bytes(content)
    async with tidegate("run", "--config", str(path)) as daemon:
        assert await daemon.ended() == 78
    assert daemon.err.count(b"\n") == 1, daemon.everything()
    assert str(path).encode() in daemon.err


async def test_a_wrong_variable_in_the_environment_is_one_line_and_exit_78(tmp_path: Path) -> None:
    path = written(tmp_path, settings_tree({LANE: GOOD}))
    async with tidegate("run", "--config", path, env={"TIDEGATE_WEB__PROT": "1"}) as daemon:
        assert await daemon.ended() == 78
    assert daemon.err.count(b"\n") == 1
    assert b"web.prot" in daemon.err


@pytest.mark.parametrize("level", ["debug", "info"])
async def test_each_step_of_each_ticket_is_a_line_at_debug_and_only_there(tmp_path: Path, level: str) -> None:
    async with world(rate=20) as server:
        tree = settings_tree({LANE: lane_tree(server.url)}, daemon={"log_level": level})
        async with tidegate("run", "--config", written(tmp_path, tree)) as daemon:
            await daemon.url()
            await eventually(lambda: server.world.ledger.counts["delivered"] > 3)
            daemon.send(signal.SIGTERM)
            assert await daemon.ended() == 0
    lines = [orjson.loads(line) for line in daemon.err.splitlines()]
    told = {line["event"] for line in lines if line["logger"] == "tickets"}
    assert told == ({"queued", "answered", "delivered"} if level == "debug" else set())
    assert not [line for line in lines if line["logger"] in {"aiosqlite", "asyncio"}]
    assert TOKEN.encode() not in daemon.err


async def test_a_port_in_use_is_one_line_and_exit_1(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = written(tmp_path, settings_tree({LANE: GOOD}, web={"port": port}))
        async with tidegate("run", "--config", path) as daemon:
            assert await daemon.ended() == 1
    assert daemon.out == b""
    lines = [line for line in daemon.err.splitlines() if not is_log(line)]
    assert len(lines) == 1, daemon.everything()
    assert lines[0].startswith(b"Error: web.port: cannot listen on 127.0.0.1:%d: Address already in" % port)
    assert b"Unclosed" not in daemon.err
    assert b"Traceback" not in daemon.err
    assert b'"stopped"' not in daemon.err  # no lane ever started


def is_log(line: bytes) -> bool:
    """A line at info or warning; an error would be a second thing to read."""
    try:
        return orjson.loads(line)["level"] in {"debug", "info", "warning"}
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return False
