"""Which configuration a command uses, in which language it speaks and which daemon it talks to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click

from pipeline.cli.client import Client
from pipeline.cli.outcome import BadConfig
from pipeline.config import Settings
from pipeline.errors import ConfigError
from pipeline.loading import load
from pipeline.texts import LANGUAGES, Texts

SYSTEM_CONFIG = Path("/etc/tidegate/config.toml")
DEFAULT_URL = "http://127.0.0.1:8090"


def find_config(given: Path | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """--config, TIDEGATE_CONFIG, ./config.toml, /etc/tidegate/config.toml, in that order."""
    if given is not None:
        return given
    if environ.get("TIDEGATE_CONFIG"):
        return Path(environ["TIDEGATE_CONFIG"])
    # One that may not even be looked at is none to go by; `os.path` says so where `Path.is_file` would raise.
    return next((path for path in (Path("config.toml"), SYSTEM_CONFIG) if os.path.isfile(path)), None)


def load_or_exit(path: Path | None) -> Settings:
    try:
        return load(path)
    except ConfigError as error:
        raise BadConfig(str(error)) from None


def texts_for(settings: Settings | None, environ: Mapping[str, str] = os.environ) -> Texts:
    if settings is not None:
        return Texts(settings.daemon.lang)
    wanted = environ.get("TIDEGATE_DAEMON__LANG")
    if wanted in LANGUAGES:
        return Texts(wanted)
    spoken = next((environ[name] for name in ("LC_ALL", "LC_MESSAGES", "LANG") if environ.get(name)), "")
    return Texts("zh" if spoken.lower().startswith("zh") else "en")


@dataclass(frozen=True, slots=True)
class Remote:
    client: Client
    texts: Texts
    own: Settings | None  # the configuration, where it is this daemon's


def remote(url: str | None, config: Path | None, environ: Mapping[str, str] = os.environ) -> Remote:
    settings = _settings_if_any(config, environ)
    texts = texts_for(settings, environ)
    own = _own_url(settings)
    chosen = (url or environ.get("TIDEGATE_URL") or own).rstrip("/")
    origin = _origin(chosen)
    token = environ.get("TIDEGATE_TOKEN", "")
    # The configured token belongs to the configured daemon; an address given by hand may be anybody's.
    is_own = settings is not None and origin == _origin(own)
    if not token and settings is not None and is_own:
        token = settings.web.token.get_secret_value()
    return Remote(Client(chosen, token, texts), texts, settings if is_own else None)


def _settings_if_any(config: Path | None, environ: Mapping[str, str]) -> Settings | None:
    """A running daemon must stay within reach though the file on disk has been broken since."""
    path = find_config(config, environ)
    if path is None:
        return None
    try:
        return load(path, environ)
    except ConfigError as error:
        if config is not None:
            raise BadConfig(str(error)) from None
        click.echo(texts_for(None, environ).say("cli.config.ignored", why=error), err=True)
        return None


def _own_url(settings: Settings | None) -> str:
    if settings is None:
        return DEFAULT_URL
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.web.host, settings.web.host)
    return f"http://[{host}]:{settings.web.port}" if ":" in host else f"http://{host}:{settings.web.port}"


def _origin(url: str) -> tuple[str, str | None, int | None]:
    try:
        parts = urlsplit(url)
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
        port = parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in {"http", "https"}:
        raise click.UsageError("the daemon's address must be like http://127.0.0.1:8090")
    return parts.scheme, host, port
