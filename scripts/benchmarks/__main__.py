"""Find the bench by name and run it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

#: Modules here that serve the benches and are none themselves.
HELPERS = frozenset(
    {"__init__", "__main__", "measure", "world", "bare", "runners", "witness", "players", "judging"}
)


def names() -> list[str]:
    return sorted(file.stem for file in Path(__file__).parent.glob("*.py") if file.stem not in HELPERS)


def summary(name: str) -> str:
    doc = importlib.import_module(f"benchmarks.{name}").__doc__ or ""
    return doc.strip().partition("\n")[0]


def usage() -> str:
    lines = [f"  {name:<10} {summary(name)}" for name in names()]
    return "\n".join(["usage: scripts/bench <name> [options]", "", *lines])


def main(argv: list[str]) -> int:
    if argv and argv[0] in names():
        return int(importlib.import_module(f"benchmarks.{argv[0]}").main(argv[1:]))
    asked_for_help = argv[:1] in (["-h"], ["--help"])
    print(usage(), file=sys.stdout if asked_for_help else sys.stderr)
    return 0 if asked_for_help else 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
