"""`tidegate trace`: what became of a ticket."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from pipeline.cli.journal_file import journal_path, reading
from pipeline.cli.options import remote_options
from pipeline.cli.outcome import DaemonUnreachable, Failed, Refused
from pipeline.cli.settings import Remote
from pipeline.cli.status import NONE, as_float, local
from pipeline.cli.table import clean, table
from pipeline.journal import traces
from pipeline.texts import Texts

#: Refusals that we have words of our own for.
SAID = {"not_found": "cli.trace.none", "journal_off": "cli.journal.off"}
TICKET = ("trace_id", "lane", "key")


@click.command()
@remote_options
@click.argument("trace_id", required=False)
@click.option("--shop", help="With --item: every ticket for that item.")
@click.option("--item", help="With --shop: every ticket for that item.")
def trace(daemon: Remote, as_json: bool, trace_id: str | None, shop: str | None, item: str | None) -> None:
    """Show what became of a ticket, step by step."""
    found = _find(daemon, _wanted(trace_id, shop, item))
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else render_trace(found, daemon.texts))


def _wanted(trace_id: str | None, shop: str | None, item: str | None) -> dict[str, str]:
    if trace_id and shop is item is None:
        wanted = {"trace_id": trace_id}
    elif shop and item and trace_id is None:
        wanted = {"shop": shop, "item": item}
    else:
        raise click.UsageError("give either a TRACE_ID, or --shop and --item")
    try:
        "".join(wanted.values()).encode()
    except UnicodeEncodeError:
        raise click.UsageError("that is no UTF-8") from None
    return wanted


def _find(daemon: Remote, wanted: dict[str, str]) -> Mapping[str, Any]:
    try:
        return _ask(daemon, wanted)
    except Refused as refusal:
        if refusal.code not in SAID:
            raise
        raise Failed(daemon.texts.say(SAID[refusal.code])) from None
    except DaemonUnreachable:
        # What a daemon has left behind can be told while it is down, too.
        path = journal_path(daemon.own) if daemon.own is not None else None
        if path is None or not os.access(path, os.R_OK):
            raise
    click.echo(daemon.texts.say("cli.trace.from_file", url=daemon.client.url, path=path), err=True)
    return _read(path, daemon.texts, wanted)


def _ask(daemon: Remote, wanted: dict[str, str]) -> Mapping[str, Any]:
    if "trace_id" in wanted:
        return daemon.client.get(f"/api/trace/{quote(wanted['trace_id'], safe='')}")
    return daemon.client.get("/api/traces", **wanted)


def _read(path: Path, texts: Texts, wanted: dict[str, str]) -> Mapping[str, Any]:
    with reading(path, texts) as connection:
        if "trace_id" in wanted:
            steps = traces.by_trace(connection, wanted["trace_id"])
        else:
            steps = traces.by_item(connection, wanted["shop"], wanted["item"])
    if not steps:
        raise Failed(texts.say("cli.trace.none"))
    return {**wanted, "steps": [step.as_dict() for step in steps], "left_out": 0}


def render_trace(found: Mapping[str, Any], texts: Texts) -> str:
    """A table for each ticket, under a line that says which and on what day."""
    lines = []
    if found.get("left_out"):
        lines += [texts.say("cli.trace.left_out", count=found["left_out"]), ""]
    for ticket, steps in groupby(found.get("steps", ()), lambda step: [step.get(name) for name in TICKET]):
        rows = list(steps)
        heading = "  ".join(clean(part) for part in ticket)
        lines += [f"{heading}  {_moment(rows[0]):%Y-%m-%d}", *_table(rows, texts), ""]
    return "\n".join(lines).rstrip("\n")


def _table(steps: list[Mapping[str, Any]], texts: Texts) -> list[str]:
    columns = ("trace.time", "status.stage", "trace.attempt", "trace.what", "trace.age")
    heading = [texts.say(f"cli.{column}") for column in columns]
    return table([heading, *(_row(step, texts) for step in steps)])


def _row(step: Mapping[str, Any], texts: Texts) -> list[object]:
    return [
        f"{_moment(step):%H:%M:%S.%f}"[:-3],
        texts.name("stage", step.get("stage", NONE)),
        step.get("attempt") or NONE,
        _what(step.get("what", NONE), texts),
        f"{as_float(step.get('age')):.1f}s",
    ]


def _moment(step: Mapping[str, Any]) -> datetime:
    return local(as_float(step.get("at")))


def _what(word: str, texts: Texts) -> str:
    step = texts.name("step", word)
    return step if step != word else texts.name("outcome", word)
