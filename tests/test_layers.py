"""Who may import whom: downwards only, and rooms on one floor never import each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "pipeline"

FLOORS = (
    {"clock", "errors", "ticket", "texts"},
    {"events", "ports"},
    {"config", "logs"},
    {"loading"},
    {"queue", "control", "http"},
    {"slots", "minutes", "money", "reload", "systemd"},
    {"pull", "query", "callback", "journal", "alerts"},
    {"lane", "sim"},
    {"web"},
    {"app"},
    {"cli"},
    {"__main__"},
)
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor}
#: The only ones that may ask the time: everything else gets a clock.
ASKS_THE_TIME = {"clock"}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py" or path.parent != ROOT)


def room(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "pipeline":
                yield from (f"pipeline.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_room_has_a_floor():
    assert {room(path) for path in modules()} <= set(FLOOR_OF)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downwards_only(path: Path):
    here = room(path)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "pipeline" or len(parts) == 1 or parts[1] in (here, "__version__"):
            continue
        assert FLOOR_OF[parts[1]] < FLOOR_OF[here], f"{here} must not import {name}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_clock_asks_the_time(path: Path):
    if room(path) not in ASKS_THE_TIME:
        assert "time" not in set(imported(path))


@pytest.mark.parametrize(
    "path", [path for path in modules() if room(path) == "control"], ids=lambda path: path.stem
)
def test_control_is_pure(path: Path):
    """No await and no I/O: it decides with values."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not any(isinstance(node, waiting) for node in ast.walk(tree))
    assert not {"asyncio", "aiohttp", "socket", "os"} & set(imported(path))


def test_only_one_room_knows_the_http_client_and_one_the_server():
    knows = {room(path) for path in modules() if any(name.startswith("aiohttp") for name in imported(path))}
    assert knows <= {"http", "web", "sim"}
