"""The commands that talk to a running daemon."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import click

from pipeline.cli.event import render_event
from pipeline.cli.options import remote_options
from pipeline.cli.outcome import DaemonUnreachable
from pipeline.cli.settings import Remote
from pipeline.cli.status import render_status
from pipeline.clock import SystemClock
from pipeline.texts import Texts

EVENTS_MAX = 1000
REFRESH = 1.0
CLEAR = "\x1b[H\x1b[2J"


def _wait(seconds: float) -> None:
    asyncio.run(SystemClock().sleep(seconds))


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@click.command()
@remote_options
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@click.option("--lane", help="Only this lane.")
def status(daemon: Remote, as_json: bool, watch: bool, lane: str | None) -> None:
    """Show what the daemon is doing."""

    def show() -> str:
        answer = daemon.client.get("/api/status", lane=lane)
        return _as_json(answer) if as_json else render_status(answer, daemon.texts)

    if not watch:
        click.echo(show())
        return
    try:
        while True:
            screen = show()
            click.echo(screen if as_json else CLEAR + screen)
            _wait(REFRESH)
    except KeyboardInterrupt:
        return


@click.command()
@remote_options
@click.option("-f", "--follow", is_flag=True, help="Go on printing until Ctrl-C.")
@click.option(
    "--limit", type=click.IntRange(1, EVENTS_MAX), default=50, show_default=True, help="How many at first."
)
@click.option("--lane", help="Only this lane.")
def events(daemon: Remote, as_json: bool, follow: bool, limit: int, lane: str | None) -> None:
    """Show recent events, oldest first."""
    tail = Tail(daemon, lane, as_json)
    tail.print_new(limit)
    try:
        while follow:
            _wait(REFRESH)
            tail.poll()
    except KeyboardInterrupt:
        return


class Tail:
    """Events after the last one seen, across restarts of the daemon."""

    def __init__(self, daemon: Remote, lane: str | None, as_json: bool) -> None:
        self._daemon = daemon
        self._lane = lane
        self._as_json = as_json
        self._last = 0
        self._connected = True

    def poll(self) -> None:
        try:
            self.print_new(EVENTS_MAX)
        except DaemonUnreachable:
            self._note_connection(False)
        else:
            self._note_connection(True)

    def print_new(self, limit: int) -> None:
        found = self._daemon.client.get("/api/events", limit=limit, lane=self._lane).get("events", [])
        newest = max((event["seq"] for event in found), default=0)
        if newest < self._last:  # the daemon was restarted and counts from one again
            self._last = 0
        fresh = sorted(
            (event for event in found if event["seq"] > self._last), key=lambda event: event["seq"]
        )
        # All lanes share one count, so only a full view of all of them shows a gap.
        if self._last and fresh and self._lane is None and fresh[0]["seq"] > self._last + 1:
            self._note("cli.events.missed", count=fresh[0]["seq"] - self._last - 1)
        for event in fresh:
            click.echo(_as_json(event) if self._as_json else render_event(event, self._daemon.texts))
        self._last = max(self._last, newest)

    def _note_connection(self, connected: bool) -> None:
        if connected != self._connected:
            self._note("cli.events.back" if connected else "cli.events.waiting")
        self._connected = connected

    def _note(self, key: str, **values: object) -> None:
        click.echo(self._daemon.texts.say(key, **values), err=True)


def _order(daemon: Remote, verb: str, as_json: bool, lane: str | None = None, **body: Any) -> None:
    given = {name: value for name, value in body.items() if value is not None}
    answer = daemon.client.post(f"/api/{verb}", given, lane=lane)
    if as_json:
        click.echo(_as_json(answer))
        return
    click.echo(daemon.texts.say(f"cli.done.{verb}"))
    for name, standing in answer.get("lanes", {}).items():
        click.echo(_standing(daemon.texts, name, standing))


def _standing(texts: Texts, lane: str, standing: dict[str, Any]) -> str:
    """Where the lane is now: a resumed lane that stays stopped should say so at once."""
    reasons = {hold["reason"] for holds in standing["holds"].values() for hold in holds}
    state = texts.name("state", standing["state"])
    if "stopped" in reasons:  # the one hold that no `resume` lifts
        return f"{lane}: {state} ({texts.say('cli.standing.stopped')})"
    held = ", ".join(texts.name("reason", reason) for reason in sorted(reasons))
    return f"{lane}: {state}" + (f" ({held})" if held else "")


@click.command()
@remote_options
@click.option("--lane", help="Only this lane.")
@click.option("--reason", help="Why, for the others.")
@click.option(
    "--for", "seconds", type=click.FloatRange(0, 86_400, min_open=True), help="Resume after SECONDS."
)
def pause(daemon: Remote, as_json: bool, lane: str | None, reason: str | None, seconds: float | None) -> None:
    """Stop pulling; what was pulled goes on."""
    _order(daemon, "pause", as_json, lane, reason=reason, **{"for": seconds})


@click.command()
@remote_options
@click.option("--lane", help="Only this lane.")
@click.option("--reason", help="Why, for the others.")
def resume(daemon: Remote, as_json: bool, lane: str | None, reason: str | None) -> None:
    """Release manual, credit, auth, drop-rate and success-limit holds."""
    _order(daemon, "resume", as_json, lane, reason=reason)


@click.command()
@remote_options
@click.option("--lane", help="Only this lane.")
def start(daemon: Remote, as_json: bool, lane: str | None) -> None:
    """Start a lane's workers."""
    _order(daemon, "start", as_json, lane)


@click.command()
@remote_options
@click.option("--lane", help="Only this lane.")
def stop(daemon: Remote, as_json: bool, lane: str | None) -> None:
    """Stop a lane's workers."""
    _order(daemon, "stop", as_json, lane)


@click.command()
@remote_options
def shutdown(daemon: Remote, as_json: bool) -> None:
    """Drain and end the daemon."""
    _order(daemon, "shutdown", as_json)


CONTROL = (status, events, pause, resume, start, stop, shutdown)
