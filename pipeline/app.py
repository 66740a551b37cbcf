"""The composition root: build, start, wait, drain, close."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
import uvloop

from pipeline import logs
from pipeline.alerts.wecom import WecomAlerts
from pipeline.callback.http import HttpSink
from pipeline.clock import Clock, SystemClock
from pipeline.config import LaneConfig, Settings
from pipeline.errors import ConfigError, JournalFault, os_reason
from pipeline.events import Bus, Event, Kind, Level
from pipeline.http import CLIENTS, Client, HttpClient
from pipeline.journal.journal import Journal
from pipeline.journal.silent import make_journal
from pipeline.lane import Lane
from pipeline.loading import load
from pipeline.ports import Provider, Sink, Source, own_end
from pipeline.pull.http import HttpSource
from pipeline.query.http import HttpProvider
from pipeline.reload import reloaded
from pipeline.sim.ports import sim_ports
from pipeline.systemd import Notifier
from pipeline.texts import Texts
from pipeline.web.app import WebServer

log = structlog.get_logger()

ALERT_FLUSH = 3.0
LAG_EVERY = 0.5
JOURNAL_FILE = "journal.db"
SPARE_CONNECTIONS = 100
LAG_WORTH_SAYING = 1.0
EXIT_FORCED = 1
#: Container objects more than at the last look.
COLLECT_AFTER = 20_000


class Daemon:
    """Everything that runs, by name; the control endpoint sees it through `web.daemon.Daemon`."""

    def __init__(self, settings: Settings, config_path: Path | None, clock: Clock | None = None) -> None:
        self.settings = settings
        self._config_path = config_path
        self.clock: Clock = clock or SystemClock()
        self.bus = Bus()
        self.started_at = self.clock.monotonic()
        self.draining = False
        self.ready = False
        client = CLIENTS[settings.daemon.http_client]
        file = Path(settings.daemon.data_dir) / JOURNAL_FILE
        self.journal = make_journal(file, settings.journal, self.clock, self.bus)
        self.journal.on_trouble = self._journal_trouble
        self.lanes: Mapping[str, Lane] = {
            name: build_lane(name, config, self.clock, self.bus, client, self.journal)
            for name, config in settings.lanes.items()
        }
        self._alert_client = client(pool_size=2, max_body=1 << 16)
        self.alerts = WecomAlerts(
            settings.alerts.wecom, Texts(settings.daemon.lang), self.clock, self.bus, self._post_alert
        )
        self.web = WebServer(self, settings.web)
        self.notifier = Notifier()
        self._stop = asyncio.Event()
        self._stopped_by = ""
        self._services: list[asyncio.Task[None]] = []
        self._stop_logging_tickets: list[Callable[[], None]] = []

    async def run(self) -> int:
        try:
            await self.startup()
            await self._stop.wait()
            await self.drain()
        finally:
            await self.close()
        return 0

    async def startup(self) -> None:
        logs.log_events(self.bus)
        self._log_tickets_at_debug()
        for name, config in self.settings.lanes.items():
            for key in config.empty_secrets():
                log.warning("a secret is empty: calls will be refused", missing=f"lanes.{name}.{key}")
        await self._alert_client.open()
        self._services = [asyncio.create_task(self.alerts.run()), asyncio.create_task(self._watch_loop())]
        await self.journal.open()
        await self.web.start()
        await asyncio.gather(*(self._open_lane(lane) for lane in self.lanes.values()))
        with contextlib.suppress(JournalFault):  # which is told in other ways
            await self.journal.tell_unclaimed(self.lanes)
        self.ready = True
        self.notifier.ready()
        log.info("ready", url=f"http://{self.settings.web.host}:{self.web.port}/", lanes=list(self.lanes))

    async def _open_lane(self, lane: Lane) -> None:
        """One lane's failure never stops another."""
        try:
            await lane.open()
        except Exception as error:
            lane.controller.crashed("open", error)
            await lane.stop("failure", "the lane could not be opened")

    async def drain(self) -> None:
        self._begin_drain()
        timeout = self.settings.daemon.drain_timeout
        await asyncio.gather(*(lane.drain(timeout) for lane in self.lanes.values()))

    def _begin_drain(self) -> None:
        if self.draining:
            return
        self.draining = True
        self.notifier.stopping()
        log.info("draining", by=self._stopped_by, timeout=self.settings.daemon.drain_timeout)
        for lane in self.lanes.values():
            lane.begin_drain(self._stopped_by)

    async def close(self) -> None:
        for lane in self.lanes.values():
            with contextlib.suppress(Exception):
                await lane.close()
        await self.journal.close()
        await self.alerts.flush(ALERT_FLUSH)
        await self.web.close()
        for task in self._services:
            task.cancel()
        await asyncio.gather(*self._services, return_exceptions=True)
        await self._alert_client.close()

    def shutdown(self, by: str) -> None:
        self._stopped_by = self._stopped_by or by
        if self.ready:  # at once, so that who gave the order hears of it in the answer
            self._begin_drain()
        self._stop.set()

    def _journal_trouble(self, trouble: str | None) -> None:
        for lane in self.lanes.values():
            lane.journal_trouble(trouble)

    # -- signals -----------------------------------------------------------------------------------

    def on_signal(self, name: str) -> None:
        if self._stop.is_set():
            log.warning("second signal: ending at once", signal=name)
            # Unwinding would still close every end and flush the alerts, which took five seconds. The journal
            # is made for being killed.
            logging.shutdown()
            os._exit(EXIT_FORCED)
        self.shutdown(name)

    def reload(self) -> None:
        """SIGHUP: the file is checked whole before anything changes."""
        try:
            change = reloaded(self.settings, load(self._config_path))
        except ConfigError as error:
            self._say(Kind.CONFIG, Level.ERROR, {"error": str(error)})
            return
        self.settings = change.settings
        self.journal.reconfigure(self.settings.journal)
        logs.configure(self.settings.daemon.log_level, self.settings.daemon.log_format)
        self._log_tickets_at_debug()
        for name, lane in self.lanes.items():
            lane.reconfigure(self.settings.lanes[name])
        level = Level.WARNING if change.needs_restart else Level.INFO
        self._say(Kind.CONFIG, level, {"changed": change.changed, "needs_restart": change.needs_restart})

    def _log_tickets_at_debug(self) -> None:
        """At other levels nobody listens: a step costs the same whether its line is written or not."""
        for stop in self._stop_logging_tickets:
            stop()
        at_debug = self.settings.daemon.log_level == "debug"
        lanes = self.lanes.values() if at_debug else ()
        self._stop_logging_tickets = [lane.on_step(logs.log_step) for lane in lanes]

    def _say(self, kind: Kind, level: Level, detail: dict[str, Any]) -> None:
        self.bus.publish(Event(self.clock.now(), "", kind, level, "", detail))

    # -- services ----------------------------------------------------------------------------------

    async def _watch_loop(self) -> None:
        """The watchdog is fed from the loop itself: a blocked loop sends no ping."""
        while True:
            due = self.clock.monotonic() + LAG_EVERY
            await self.clock.sleep(LAG_EVERY)
            self.notifier.alive()
            late = self.clock.monotonic() - due
            if late > LAG_WORTH_SAYING:
                self._say(Kind.LOOP_LAG, Level.WARNING, {"seconds": round(late, 2)})

    async def _post_alert(
        self, url: str, params: dict[str, str], body: bytes, timeout: float
    ) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        reply = await self._alert_client.call("POST", url, timeout, params=params, headers=headers, body=body)
        return reply.status, bytes(reply.body)


def build_lane(
    name: str,
    config: LaneConfig,
    clock: Clock,
    bus: Bus,
    client: type[Client] = HttpClient,
    journal: Journal | None = None,
) -> Lane:
    try:
        source, provider, sink = _ends(name, config, clock, client)
    except ConfigError as error:
        raise ConfigError(f"lanes.{name}.{error}") from None
    return Lane(name, config, source, provider, sink, clock, bus, journal)


def _ends(lane: str, config: LaneConfig, clock: Clock, client: type[Client]) -> tuple[Source, Provider, Sink]:
    kinds = (config.source, config.provider, config.sink)
    simulated = sim_ports(lane, config.sim, clock) if "sim" in kinds else (None, None, None)
    return (
        _end("source", kinds[0], simulated[0], HttpSource, config.pull, clock, client),
        _end("provider", kinds[1], simulated[1], HttpProvider, config.query, clock, client),
        _end("sink", kinds[2], simulated[2], HttpSink, config.callback, clock, client),
    )


def _end(
    role: str, kind: str, simulated: Any, over_http: Any, section: Any, clock: Clock, client: type[Client]
) -> Any:
    if kind == "sim":
        return simulated
    if kind == "http":
        # Calls that hang keep their connection but not their slot, so there are more of these.
        connections = 2 * section.workers * section.batch + SPARE_CONNECTIONS
        return over_http(section, clock, connections, client)
    try:
        return own_end(role, kind)(section, clock)
    except ConfigError as error:
        raise ConfigError(f"{role}: {error}") from None


# -- entry points --------------------------------------------------------------------------------------


def run(config_path: Path | None) -> int:
    settings = load(config_path)
    prepare(settings)
    spare_the_collector()
    return uvloop.run(_serve(settings, config_path))


def demo(scenario: str, rate: float, seconds: float | None, port: int) -> int:
    """The daemon and a simulated world in one process, no keys needed."""
    lane = LaneConfig(source="sim", provider="sim", sink="sim")
    sim = lane.sim.model_copy(update={"scenario": scenario, "rate": rate, "seed": random.randrange(1 << 31)})
    with tempfile.TemporaryDirectory(prefix="tidegate-demo-") as folder:
        base = Settings()
        settings = base.model_copy(
            update={
                "daemon": base.daemon.model_copy(update={"data_dir": folder}),
                "web": base.web.model_copy(update={"port": port}),
                "lanes": {"demo": lane.model_copy(update={"sim": sim})},
            }
        )
        prepare(settings)
        spare_the_collector()
        return uvloop.run(_serve(settings, None, seconds))


def prepare(settings: Settings) -> None:
    logs.configure(settings.daemon.log_level, settings.daemon.log_format)
    for secret in secrets(settings):
        logs.register_secret(secret)


def spare_the_collector() -> None:
    """What is loaded by now stays: never look through it again. And look through the rest seldom.

    Tickets leave no cycles, whatever becomes of them (a test watches that), so the collector finds nothing.
    At its own pace it took a twentieth of the time at full speed, and up to 70 ms at once.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


def secrets(settings: Settings) -> list[str]:
    found = [settings.web.token, settings.alerts.wecom.key]
    for lane in settings.lanes.values():
        found += [lane.pull.phone, lane.query.token]
    return [value for secret in found if (value := secret.get_secret_value())]


async def _serve(settings: Settings, config_path: Path | None, seconds: float | None = None) -> int:
    daemon = Daemon(settings, config_path)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, daemon.on_signal, number.name)
    loop.add_signal_handler(signal.SIGHUP, daemon.reload)
    if seconds is not None:
        loop.call_later(seconds, daemon.shutdown, "demo over")
    try:
        return await daemon.run()
    except JournalFault as error:
        return _failed(str(error))
    except OSError as error:
        return _failed(_cannot_listen(settings, error))


def _failed(why: str) -> int:
    print(f"Error: {why}", file=sys.stderr)
    return 1


def _cannot_listen(settings: Settings, error: OSError) -> str:
    web = settings.web
    hint = " (by a daemon that runs? else choose another port)" if error.errno == errno.EADDRINUSE else ""
    return f"web.port: cannot listen on {web.host}:{web.port}: {os_reason(error)}{hint}"
