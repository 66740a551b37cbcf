"""`tidegate db`: look after the journal's file, while the daemon runs or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pipeline.cli.journal_file import existing_journal, faults_told
from pipeline.cli.options import config_option, json_option
from pipeline.cli.outcome import Failed
from pipeline.cli.settings import find_config, load_or_exit, texts_for
from pipeline.cli.status import size
from pipeline.cli.table import clean
from pipeline.journal import maintenance
from pipeline.texts import Texts


@click.group()
def db() -> None:
    """Look after the journal; the daemon may be running."""


@db.command()
@config_option
@json_option
def check(config: Path | None, as_json: bool) -> None:
    """Look for damage."""
    path, texts = _journal(config)
    with faults_told(texts, path.name):
        problems = maintenance.check(path)
    said = texts.say("cli.db.damaged" if problems else "cli.db.sound", path=path)
    _print({"path": str(path), "problems": problems}, [said, *problems], as_json)
    raise SystemExit(1 if problems else 0)


@db.command()
@click.argument("to", type=click.Path(path_type=Path))
@config_option
@json_option
def backup(to: Path, config: Path | None, as_json: bool) -> None:
    """Copy the journal as of now into the new file TO."""
    path, texts = _journal(config)
    folder = to.absolute().parent
    if not folder.is_dir():
        raise Failed(texts.say("cli.db.no_folder", path=folder))
    with faults_told(texts, path.name):
        written = maintenance.backup(path, to)
    said = texts.say("cli.db.backed_up", to=to, size=size(written), key=path.with_suffix(".key"))
    _print({"path": str(path), "to": str(to), "bytes": written}, [said], as_json)


@db.command()
@config_option
@json_option
def vacuum(config: Path | None, as_json: bool) -> None:
    """Give unused space back to the disk."""
    path, texts = _journal(config)
    with faults_told(texts, path.name):
        done = maintenance.vacuum(path)
    before, after = done.bytes_before, done.bytes_after
    said = texts.say("cli.db.vacuumed", path=path, before=size(before), after=size(after))
    _print({"path": str(path), "bytes_before": before, "bytes_after": after}, [said], as_json)


def _journal(config: Path | None) -> tuple[Path, Texts]:
    settings = load_or_exit(find_config(config))
    texts = texts_for(settings)
    return existing_journal(settings, texts), texts


def _print(told: dict[str, Any], lines: list[str], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
    else:
        click.echo("\n".join(clean(line) for line in lines))
