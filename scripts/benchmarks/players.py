"""The daemon and the world as a bench sees them: processes that it starts, asks and ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import (
    ROOT,
    Child,
    clean_environment,
    end_on_signals,
    machine,
    memory_kb,
    running,
    write_json,
)

LANE = "bench"
START_PATIENCE = 30.0
#: The journal as the daemon names it in its data directory.
JOURNAL = "journal.db"


class Broken(Exception):
    """The daemon or the world did not do what no run can do without."""


def python_env() -> dict[str, str]:
    return clean_environment({"PYTHONPATH": os.pathsep.join((str(ROOT / "scripts"), str(ROOT)))})


def ask(port: int, path: str, body: Mapping[str, Any] | None = None, timeout: float = 20) -> Any:
    """JSON from a local server; OSError or HTTPException if there is none, Broken if it says no."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise Broken(f"{path} answered {answer.status}")
    return json.loads(text)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class World:
    """The witness process."""

    def __init__(self, child: Child, port: int) -> None:
        self.child = child
        self.port = port
        self.base = f"http://127.0.0.1:{port}"

    def behave(self, changes: Mapping[str, Any]) -> None:
        ask(self.port, "/sim/behaviour", changes)

    def truth(self) -> dict[str, Any]:
        return ask(self.port, "/sim/truth")

    def counts(self) -> dict[str, int]:
        return ask(self.port, "/witness/counts")

    def facts(self) -> dict[str, Any]:
        return ask(self.port, "/witness/facts", timeout=60)


@contextlib.contextmanager
def world(behaviour: Mapping[str, Any], seed: int = 1) -> Iterator[World]:
    command = [sys.executable, "-m", "benchmarks.witness"]
    command += ["--behaviour", json.dumps(behaviour), "--seed", str(seed)]
    with running(command, python_env(), stdout=subprocess.PIPE, text=True) as child:
        line = child.stdout.readline()
        if not line:
            raise Broken(f"the world did not start: {child.last_words()}")
        yield World(child, int(line))


class Daemon:
    """One configuration and one journal, as many processes one after another as a bench likes."""

    def __init__(self, folder: Path, base: str, options: Mapping[str, Mapping[str, Any]]) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.base = base
        self._config = folder / "config.toml"
        self._config.write_text(self._toml(options), encoding="utf-8")

    def _toml(self, options: Mapping[str, Mapping[str, Any]]) -> str:
        """`options` are sections, those of the lane by their own name."""
        sections: dict[str, dict[str, Any]] = {
            "daemon": {"log_level": "error", "log_format": "json", "data_dir": str(self.data)},
            "web": {"port": self.port},
            "journal": {},
            "pull": {"url": self.base, "phone": "13800000000"},
            "query": {"url": self.base, "token": "bench"},
            "callback": {"url": self.base},
        }
        for name, values in options.items():
            sections.setdefault(name, {}).update(values)
        lines = []
        for name, values in sections.items():
            lines.append(f"[{name}]" if name in ("daemon", "web", "journal") else f"[lanes.{LANE}.{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        return "\n".join(lines) + "\n"

    @property
    def journal(self) -> Path:
        return self.data / JOURNAL

    def start(self) -> Child:
        command = [sys.executable, "-m", "pipeline", "run", "--config", str(self._config)]
        return Child(command, python_env(), stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def running(self, patience: float = 30) -> Iterator[Child]:
        child = self.start()
        try:
            if not self.wait_ready(child):
                raise Broken(f"the daemon did not start: {child.last_words()}")
            yield child
        finally:
            child.stop(patience)

    def wait_ready(self, child: Child, patience: float = START_PATIENCE) -> bool:
        end = time.monotonic() + patience
        while time.monotonic() < end and child.alive():
            if self.is_ready():
                return True
            time.sleep(0.01)
        return False

    def is_ready(self) -> bool:
        try:
            return bool(ask(self.port, "/readyz", timeout=5)["ready"])
        except (OSError, http.client.HTTPException, Broken):
            return False

    def status(self) -> dict[str, Any]:
        return ask(self.port, "/api/status")["lanes"][LANE]

    def events(self, limit: int = 100) -> list[dict[str, Any]]:
        return ask(self.port, f"/api/events?limit={limit}")["events"]

    def journal_bytes(self) -> int:
        return sum(
            file.stat().st_size
            for suffix in ("", "-wal")
            if (file := Path(f"{self.journal}{suffix}")).exists()
        )


def resident_mb(pid: int) -> float:
    return memory_kb(pid, "VmRSS") / 1024


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def conducted(
    name: str, run: Callable[[], dict[str, Any]], show: Callable[[dict[str, Any]], None], to: str | None
) -> dict[str, Any] | None:
    """A bench from beginning to end; None if it broke off, which has then been said."""
    end_on_signals()
    where = machine()
    try:
        result = run()
    except Broken as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    show(result)
    if to:
        write_json(to, {"machine": where, **result})
    return result
