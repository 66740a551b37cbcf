"""The commands that need no daemon, and the group that holds all."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import click

from pipeline import __version__
from pipeline.alerts.wecom import WecomAlerts
from pipeline.cli import unit
from pipeline.cli.check import Checks, Finding, unknown_variables
from pipeline.cli.client import post_once
from pipeline.cli.control import CONTROL
from pipeline.cli.db import db
from pipeline.cli.options import config_option, json_option
from pipeline.cli.outcome import BadConfig, Failed
from pipeline.cli.report import report
from pipeline.cli.settings import SYSTEM_CONFIG, find_config, load_or_exit, texts_for
from pipeline.cli.table import clean, pad, width
from pipeline.cli.trace import trace
from pipeline.clock import SystemClock
from pipeline.config import Settings
from pipeline.errors import ConfigError, os_reason
from pipeline.events import Bus


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """Tidegate: pull, query, call back, within the deadline."""


@main.command()
@config_option
def run(config: Path | None) -> None:
    """Run the daemon."""
    from pipeline import app  # the engine is loaded only by who runs it

    try:
        raise SystemExit(app.run(find_config(config)))
    except ConfigError as error:
        raise BadConfig(str(error)) from None


def _known_scenario(_context: click.Context, _option: click.Parameter, name: str) -> str:
    from pipeline.sim.scenarios import find_script

    try:
        return find_script(name).name
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


scenario_option = click.option(
    "--scenario",
    default="calm",
    show_default=True,
    callback=_known_scenario,
    help="What goes wrong in the simulated world; one that is unknown lists all.",
)


@main.command()
@scenario_option
@click.option(
    "--rate", type=click.FloatRange(0, 100_000), default=20.0, show_default=True, help="Tickets a second."
)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="End after this long.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8090,
    show_default=True,
    help="Control endpoint; 0 = any free port.",
)
def demo(scenario: str, rate: float, seconds: float | None, port: int) -> None:
    """Run the daemon against a simulated world."""
    from pipeline import app

    try:
        raise SystemExit(app.demo(scenario, rate, seconds, port))
    except ConfigError as error:
        raise BadConfig(str(error)) from None


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=9100, show_default=True, help="0 = any free port."
)
@click.option(
    "--rate", type=click.FloatRange(0, 100_000), default=20.0, show_default=True, help="Tickets a second."
)
@scenario_option
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed, the same world.")
def sim(host: str, port: int, rate: float, scenario: str, seed: int) -> None:
    """Serve the simulated upstream, provider and callback receiver over HTTP."""
    try:
        asyncio.run(_serve_sim(host, port, rate, scenario, seed))
    except OSError as error:
        raise Failed(f"cannot listen on {host}:{port}: {os_reason(error)}") from None


async def _serve_sim(host: str, port: int, rate: float, scenario: str, seed: int) -> None:
    from pipeline.sim.behaviour import Behaviour
    from pipeline.sim.server import serve

    done = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, done.set)
    server = await serve(host, port, Behaviour(rate=rate), scenario, seed)
    click.echo(server.url)
    try:
        await done.wait()
    finally:
        await server.close()


@main.command()
@config_option
@json_option
def check(config: Path | None, as_json: bool) -> None:
    """Check configuration, machine and the outside."""
    path = find_config(config)
    texts = texts_for(None)
    label = texts.say("check.environment")
    unknown = [
        Finding("✗", label, texts.say("check.environment.unknown", name=name))
        for name in unknown_variables(os.environ)
    ]
    if unknown:
        _print_findings(unknown, as_json)
        raise SystemExit(BadConfig.exit_code)
    settings = load_or_exit(path)
    texts = texts_for(settings)
    fine = Finding("✓", texts.say("check.environment"), texts.say("check.environment.ok"))
    findings = [fine, *asyncio.run(Checks(settings, path, texts).run())]
    _print_findings(findings, as_json)
    if any(found.bad_config for found in findings):
        raise SystemExit(BadConfig.exit_code)
    raise SystemExit(1 if any(found.mark == "✗" for found in findings) else 0)


def _print_findings(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        rows = [{"ok": f.mark != "✗", "mark": f.mark, "name": f.name, "text": f.text} for f in findings]
        click.echo(json.dumps({"checks": rows}, ensure_ascii=False))
        return
    widest = max(width(found.name) for found in findings)
    for found in findings:
        click.echo(f"{found.mark} {pad(found.name, widest)}  {clean(found.text)}")


@main.group()
def alert() -> None:
    """Alerts."""


@alert.command("test")
@config_option
@json_option
def alert_test(config: Path | None, as_json: bool) -> None:
    """Send a test message to the WeCom group."""
    sent, message = asyncio.run(_test_message(load_or_exit(find_config(config))))
    click.echo(json.dumps({"sent": sent, "message": message}, ensure_ascii=False) if as_json else message)
    raise SystemExit(0 if sent else 1)


async def _test_message(settings: Settings) -> tuple[bool, str]:
    async def post(url: str, params: dict[str, str], body: bytes, timeout: float) -> tuple[int, bytes]:
        return await asyncio.to_thread(post_once, url, params, body, timeout)

    wecom = settings.alerts.wecom
    return await WecomAlerts(wecom, texts_for(settings), SystemClock(), Bus(), post).probe()


@main.command()
@config_option
def service(config: Path | None) -> None:
    """Print a systemd unit for this installation."""
    path = (find_config(config) or SYSTEM_CONFIG).absolute()
    command = unit.own_command()
    if not os.path.isfile(path):
        click.echo(texts_for(None).say("cli.service.no_config", path=path), err=True)
    for hidden in unit.hidden_paths(command, path):
        click.echo(texts_for(None).say("cli.service.home", path=hidden), err=True)
    click.echo(unit.fill_in(unit.unit_file().read_text(encoding="utf-8"), command, path), nl=False)


@main.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    click.echo(json.dumps({"version": __version__}) if as_json else __version__)


for command in (*CONTROL, trace, report, db):
    main.add_command(command)
