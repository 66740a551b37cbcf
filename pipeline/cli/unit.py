"""`tidegate service`: the systemd unit, with the paths of this installation."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pipeline

#: With the remark above it, which is true of the shipped file only.
SHIPPED_COMMAND = "/usr/bin/env /opt/tidegate/.venv/bin/tidegate"
SHIPPED_REMARK = re.compile(r"# env, so that .*\n")
SHIPPED_CONFIG = "/etc/tidegate/config.toml"
#: What ProtectHome= hides.
HOMES = ("/home/", "/root/", "/run/user/")


def unit_file() -> Path:
    """Beside the package in a wheel, under scripts/ in a source tree."""
    package = Path(pipeline.__file__).parent
    shipped = package / "tidegate.service"
    return shipped if shipped.is_file() else package.parent / "scripts" / "tidegate.service"


def own_command() -> list[str]:
    """How this very program would be started again."""
    beside = Path(sys.executable).with_name("tidegate")
    if beside.is_file():
        return [str(beside)]
    found = shutil.which("tidegate")
    return [found] if found else [sys.executable, "-m", "pipeline"]


def fill_in(unit: str, command: list[str], config: Path) -> str:
    unit = SHIPPED_REMARK.sub("", unit)
    unit = unit.replace(SHIPPED_COMMAND, " ".join(map(_word, command)))
    return unit.replace(SHIPPED_CONFIG, _word(str(config)))


def _word(text: str) -> str:
    """As systemd reads it: % begins a specifier, and a space ends a word that is not quoted."""
    text = text.replace("%", "%%")
    if not any(char in text for char in " \t\"'\\"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def hidden_paths(command: list[str], config: Path) -> list[str]:
    return [path for path in (*command, str(config)) if path.startswith(HOMES)]
