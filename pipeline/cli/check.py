"""`tidegate check`: whether this machine, this configuration and the outside fit together."""

from __future__ import annotations

import asyncio
import os
import resource
import ssl
import stat
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pipeline
from pipeline.clock import SystemClock
from pipeline.config import LaneConfig, Settings
from pipeline.errors import ConfigError
from pipeline.loading import ENV_PREFIX, ENV_RESERVED
from pipeline.ports import own_end
from pipeline.sim.scenarios import find_script
from pipeline.texts import Texts

REACH_TIMEOUT = 5.0
#: Besides the slots: journal, log, web clients, DNS.
FILES_SPARE = 128
DAY = 86_400

Mark = Literal["✓", "✗", "!"]


@dataclass(frozen=True, slots=True)
class Finding:
    mark: Mark
    name: str
    text: str
    bad_config: bool = False  # `run` would refuse it too


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Ours by prefix, but of no section: most likely mistyped."""
    return [
        name
        for name in sorted(environ)
        if name.startswith(ENV_PREFIX)
        and name not in ENV_RESERVED
        and name.removeprefix(ENV_PREFIX).lower().split("__")[0] not in Settings.model_fields
    ]


class Checks:
    def __init__(self, settings: Settings, path: Path | None, texts: Texts) -> None:
        self._settings = settings
        self._path = path
        self._texts = texts

    async def run(self) -> list[Finding]:
        local = [
            self._config(),
            *self._scenarios(),
            *self._secrets(),
            *self._clock(),
            *self._permissions(),
            self._data_dir(),
            self._files(),
        ]
        outside = await asyncio.gather(*self._ends(), self._wecom())
        return [*local, *outside]

    def _found(self, mark: Mark, label: str, key: str, /, **values: object) -> Finding:
        """The label is a text's key, or a name as it is."""
        if label.startswith("check."):
            label = self._texts.say(label)
        return Finding(mark, label, self._texts.say(key, **values))

    def _config(self) -> Finding:
        if self._path is None:
            return self._found("!", "check.config", "check.config.none")
        return Finding("✓", self._texts.say("check.config"), str(self._path))

    def _scenarios(self) -> Iterator[Finding]:
        for name, lane in self._settings.lanes.items():
            try:
                find_script(lane.sim.scenario)
            except ConfigError as error:
                yield Finding("✗", self._texts.say("check.config"), f"lanes.{name}.sim.{error}", True)

    def _secrets(self) -> Iterator[Finding]:
        for name, lane in self._settings.lanes.items():
            for key in lane.empty_secrets():
                yield self._found("!", "check.secrets", "check.secrets.empty", key=f"lanes.{name}.{key}")

    def _clock(self) -> Iterator[Finding]:
        now = SystemClock().now()
        built = Path(pipeline.__file__).stat().st_mtime
        if now < built - DAY:
            moments = {"now": _date(now), "built": _date(built)}
            yield self._found("✗", "check.clock", "check.clock.old", **moments)
        for zone in sorted({lane.pull.timezone for lane in self._settings.lanes.values()}):
            local = datetime.fromtimestamp(now, ZoneInfo(zone))
            text = f"{local:%Y-%m-%d %H:%M:%S %z}"
            yield self._found("✓", "check.clock", "check.clock.now", zone=zone, now=text)

    def _permissions(self) -> Iterator[Finding]:
        if self._path is None:
            return
        readable = bool(self._path.stat().st_mode & stat.S_IROTH)
        if readable and _holds_secrets(tomllib.loads(self._path.read_text(encoding="utf-8"))):
            yield self._found("!", "check.permissions", "check.permissions.open", path=self._path)
        else:
            yield self._found("✓", "check.permissions", "check.permissions.ok", path=self._path)

    def _data_dir(self) -> Finding:
        folder = Path(self._settings.daemon.data_dir)
        nearest = next(each for each in (folder, *folder.absolute().parents) if os.path.exists(each))
        usable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
        key = "check.data.ok" if usable else "check.data.bad"
        return self._found("✓" if usable else "✗", "check.data", key, path=folder)

    def _files(self) -> Finding:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        need = FILES_SPARE + sum(map(_slots, self._settings.lanes.values()))
        values = {"soft": soft, "hard": hard, "need": need}
        if _enough(soft, need):
            return self._found("✓", "check.files", "check.files.ok", **values)
        if _enough(hard, need):
            return self._found("!", "check.files", "check.files.raise", **values)
        return self._found("✗", "check.files", "check.files.low", **values)

    def _ends(self) -> Iterator[Any]:
        for name, lane in self._settings.lanes.items():
            for section, role in (("pull", "source"), ("query", "provider"), ("callback", "sink")):
                label = f"{name} {self._texts.name('stage', section)}"
                yield self._end(label, role, getattr(lane, role), getattr(lane, section).url)

    async def _end(self, label: str, role: str, end: str, url: str) -> Finding:
        if end == "sim":
            return self._found("✓", label, "check.end.simulated")
        if end == "http":
            return await self._reach(label, url, "✗")
        try:
            own_end(role, end)
        except ConfigError as error:
            return Finding("✗", label, str(error), bad_config=True)
        except Exception as error:  # the module is the user's own: anything may be wrong in it
            why = f"{type(error).__name__}: {error}"
            return self._found("✗", label, "check.end.custom_bad", name=end, why=why)
        return self._found("✓", label, "check.end.custom", name=end)

    async def _wecom(self) -> Finding:
        wecom = self._settings.alerts.wecom
        if not wecom.key.get_secret_value():
            return self._found("!", "check.alerts", "check.alerts.no_key")
        return await self._reach("check.alerts", wecom.url, "!")

    async def _reach(self, label: str, url: str, otherwise: Mark) -> Finding:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host, port = parts.hostname or "", parts.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(REACH_TIMEOUT):
                await _connect(host, port, secure)
        except (OSError, TimeoutError, ValueError) as error:
            why = str(error) or type(error).__name__
            return self._found(otherwise, label, "check.end.unreachable", host=host, port=port, why=why)
        return self._found("✓", label, "check.end.reachable", host=host, port=port)


async def _connect(host: str, port: int, secure: bool) -> None:
    context = ssl.create_default_context() if secure else None
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.close()
    try:
        await writer.wait_closed()
    except OSError:
        return  # it was reached; how it hangs up is its own affair


def _slots(lane: LaneConfig) -> int:
    """Connections at most: simulated ends need none."""
    ends = ((lane.source, lane.pull), (lane.provider, lane.query), (lane.sink, lane.callback))
    return sum(section.workers * section.batch for end, section in ends if end != "sim")


def _enough(limit: int, need: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= need


def _holds_secrets(tree: Mapping[str, Any]) -> bool:
    """`pull.fields.token` is the name of a field, not a token."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            if name != "fields" and _holds_secrets(value):
                return True
        elif name in {"token", "key", "phone"} and value:
            return True
    return False


def _date(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"
