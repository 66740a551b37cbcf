"""The daemon and the world as processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from tests.e2e.harness import PATIENCE

ROOT = Path(__file__).parents[2]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Without the variables of whoever runs the tests: each would be a configuration key."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")}
    kept.pop("NOTIFY_SOCKET", None)
    kept.pop("CREDENTIALS_DIRECTORY", None)
    return kept | {"PYTHONPATH": str(ROOT), **(extra or {})}


def toml(tree: Mapping[str, Any]) -> str:
    """Enough TOML for a configuration: JSON's values are TOML's, tables are inline."""

    def value(item: Any) -> str:
        if isinstance(item, Mapping):
            return "{ " + ", ".join(f"{name} = {value(inner)}" for name, inner in item.items()) + " }"
        return orjson.dumps(item).decode()

    return "".join(f"{name} = {value(item)}\n" for name, item in tree.items())


class Tidegate:
    """One process; its output is collected, and it never outlives the test."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.out = b""
        self.err = b""
        self._grew = asyncio.Condition()
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            asyncio.create_task(self._collect(process.stdout, "out")),
            asyncio.create_task(self._collect(process.stderr, "err")),
        ]

    async def _collect(self, stream: asyncio.StreamReader, name: str) -> None:
        while chunk := await stream.read(1 << 16):
            setattr(self, name, getattr(self, name) + chunk)
            async with self._grew:
                self._grew.notify_all()
        async with self._grew:
            self._grew.notify_all()

    async def says(self, text: bytes) -> bytes:
        """Wait for a whole line that holds this text, on either stream."""
        async with asyncio.timeout(PATIENCE), self._grew:
            while True:
                for line in (self.out + self.err).splitlines(keepends=True):
                    if text in line and line.endswith(b"\n"):
                        return line.strip()
                assert not all(reader.done() for reader in self._readers), self.everything()
                await self._grew.wait()

    async def url(self) -> str:
        """Of the control endpoint, once the daemon is ready."""
        line = await self.says(b'"ready"')
        return str(orjson.loads(line)["url"]).rstrip("/")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            code = await self.process.wait()
            await asyncio.gather(*self._readers)
        return code

    def everything(self) -> str:
        return (self.out + self.err).decode(errors="replace")

    async def close(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()


@asynccontextmanager
async def tidegate(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Tidegate]:
    with TemporaryDirectory(prefix="tidegate-test-") as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pipeline", *arguments),
            cwd=folder,
            env=clean_environment(env),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        child = Tidegate(process)
        try:
            yield child
        finally:
            await child.close()
