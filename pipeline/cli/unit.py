"""`tidegate service`: the systemd unit, with the paths of this installation."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pipeline

SHIPPED_COMMAND = "/opt/tidegate/.venv/bin/tidegate"
SHIPPED_CONFIG = "/etc/tidegate/config.toml"
#: What ProtectHome= hides.
HOMES = ("/home/", "/root/", "/run/user/")


def unit_file() -> Path:
    """Beside the package in a wheel, under scripts/ in a source tree."""
    package = Path(pipeline.__file__).parent
    shipped = package / "tidegate.service"
    return shipped if shipped.is_file() else package.parent / "scripts" / "tidegate.service"


def own_command() -> str:
    """How this very program would be started again."""
    beside = Path(sys.executable).with_name("tidegate")
    if beside.is_file():
        return str(beside)
    return shutil.which("tidegate") or f"{sys.executable} -m pipeline"


def fill_in(unit: str, command: str, config: Path) -> str:
    # systemd reads % as the start of a specifier
    paths = {SHIPPED_COMMAND: command, SHIPPED_CONFIG: str(config)}
    for shipped, ours in paths.items():
        unit = unit.replace(shipped, ours.replace("%", "%%"))
    return unit


def hidden_paths(command: str, config: Path) -> list[str]:
    return [path for path in (command, str(config)) if path.startswith(HOMES)]
