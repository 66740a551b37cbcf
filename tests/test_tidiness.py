"""What the house does not want lying about."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP_LEVEL = {
    "LICENSE",
    "README.md",
    "README.zh.md",
    "config.toml",
    "pipeline",
    "pyproject.toml",
    "requirements.lock",
    "scripts",
    "tests",
}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
REGISTRY = re.compile(r"https?://[^\s\"']*(pypi|npmjs|pythonhosted|debian\.org|simple/)", re.IGNORECASE)
#: A file may be as long as its one purpose needs; past this it has two.
LINES_MAX = 450


def committed() -> list[Path]:
    """What git knows, or all there is where this is not a checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.decode().split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


def test_the_top_level_stays_as_it_is():
    names = {path.relative_to(ROOT).parts[0] for path in committed()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_nothing_is_left_unfinished():
    here = Path(__file__)
    found = [str(path) for path in committed() if path != here and UNFINISHED.search(text_of(path))]
    assert found == []


def test_no_address_of_a_package_registry_is_written_down():
    assert [str(path) for path in committed() if REGISTRY.search(text_of(path))] == []


def test_no_room_is_called_utils():
    names = {part.removesuffix(".py") for path in committed() for part in path.relative_to(ROOT).parts}
    assert not names & {"utils", "util", "helpers", "common", "misc"}


def test_no_module_has_grown_two_purposes():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in committed()
        if path.suffix == ".py"
        and path.is_relative_to(ROOT / "pipeline")
        and (lines := text_of(path).count("\n")) > LINES_MAX
    }
    assert long == {}


def test_the_lock_is_pinned_by_hash():
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([a-z0-9][\w.-]*)==", lock, re.MULTILINE | re.IGNORECASE)
    assert len(pins) > 20
    assert lock.count("--hash=sha256:") >= len(pins)
