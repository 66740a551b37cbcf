"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pipeline.cli.settings import remote

Command = Callable[..., None]

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, readable=False),  # one that cannot be read is a bad configuration: 78
    help="Configuration file (else TIDEGATE_CONFIG, ./config.toml, /etc/tidegate/config.toml).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def remote_options(command: Command) -> Command:
    """--url, --config and --json; the command gets a Remote in place of the first two."""

    @click.option("--url", help="The daemon's address (else TIDEGATE_URL, else the configuration).")
    @config_option
    @json_option
    @functools.wraps(command)
    def wrapped(url: str | None, config: Path | None, **rest: Any) -> None:
        command(remote(url, config), **rest)

    return wrapped
