"""Where the configuration comes from: environment over credentials over file, merged, then checked."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.config import Settings
from pipeline.errors import ConfigError

ENV_PREFIX = "TIDEGATE_"
#: Variables of ours that are not configuration keys.
ENV_RESERVED = frozenset({"TIDEGATE_CONFIG", "TIDEGATE_URL", "TIDEGATE_TOKEN"})


def load(path: Path | None, environ: Mapping[str, str] = os.environ) -> Settings:
    """Read, merge and check. Raises ConfigError with one line."""
    tree = _file_tree(path) if path is not None else {}
    written = set(_lanes(tree))
    credentials = environ.get("CREDENTIALS_DIRECTORY")
    if credentials:
        _merge(tree, _credential_tree(Path(credentials)))
    _merge(tree, _env_tree(environ))
    try:
        settings = Settings(**tree)
    except ValidationError as error:
        raise ConfigError(one_line(error) + _outside(error, written)) from None
    if not settings.lanes:
        nowhere = "" if path else "; no config.toml here or in /etc/tidegate: name one with --config"
        raise ConfigError(f"lanes: at least one lane is needed, e.g. [lanes.shopee]{nowhere}")
    return settings


def _lanes(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    lanes = tree.get("lanes")
    return lanes if isinstance(lanes, Mapping) else {}


def _outside(error: ValidationError, written: set[str]) -> str:
    """A lane that is not in the file is most likely one whose name was mistyped in a variable."""
    match error.errors(include_url=False, include_input=False)[0]["loc"]:
        case ("lanes", str(lane), *_) if written and lane not in written:
            return f" (the file has no lane {lane}: a variable or a credential names it)"
    return ""


def _file_tree(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _env_tree(environ: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, value in sorted(environ.items()):
        if name.startswith(ENV_PREFIX) and name not in ENV_RESERVED:
            _plant(tree, name.removeprefix(ENV_PREFIX).lower().split("__"), value)
    return tree


def _credential_tree(folder: Path) -> dict[str, Any]:
    """systemd credentials: a file named `lanes.shopee.query.token` holds that key's value."""
    tree: dict[str, Any] = {}
    if folder.is_dir():
        for file in sorted(folder.iterdir()):
            if file.is_file():
                _plant(tree, file.name.split("."), _credential(file))
    return tree


def _credential(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{file.name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file.name}: the credential is not UTF-8 text") from None


def _plant(tree: dict[str, Any], path: list[str], value: str) -> None:
    for part in path[:-1]:
        branch = tree.setdefault(part, {})
        if not isinstance(branch, dict):
            raise ConfigError(f"{'.'.join(path)}: {part} is a value, not a section")
        tree = branch
    tree[path[-1]] = _structured(value)


def _structured(value: str) -> Any:
    """Lists and tables are written as in TOML; anything else stays text for the model to read."""
    if value[:1] in "[{" and value:
        try:
            return tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            return value
    return value


def _merge(tree: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = value


#: Where the library would speak of Python.
_IN_OUR_WORDS = {
    "extra_forbidden": "unknown key",
    "tuple_type": "must be a list, like [1, 2]",
    "dict_type": "must be a table, not one value",
    "model_type": "must be a section, not one value",
}

_KEY_IN_SECTION = re.compile(r"([a-z_]+(?:\.[a-z_]+)*): ")


def one_line(error: ValidationError) -> str:
    """The first problem, by its key; never the value, which may be a secret."""
    errors = error.errors(include_url=False, include_input=False)
    # A default that depends on a bad value is not a second mistake.
    first, *others = [each for each in errors if each["type"] != "default_factory_not_called"]
    where = [str(part) for part in first["loc"]]
    what = _IN_OUR_WORDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    if named := _KEY_IN_SECTION.match(what):  # found by the section, which cannot say where it stands
        where.append(named[1])
        what = what[named.end() :]
    more = f" (and {len(others)} more)" if others else ""
    return f"{'.'.join(where)}: {what}{more}" if where else f"{what}{more}"
