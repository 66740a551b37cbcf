"""Columns that line up although a Chinese character is two cells wide."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import combining, east_asian_width


def width(text: str) -> int:
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)


def pad(text: str, cells: int) -> str:
    return text + " " * max(0, cells - width(text))


def clean(value: object) -> str:
    """One printable line: what came from outside must not steer the terminal."""
    return "".join(char if char.isprintable() else "·" for char in str(value))


def table(rows: Sequence[Sequence[object]], indent: str = "  ") -> list[str]:
    """The first row is the heading. The last column is not padded."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not cells:
        return []
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    return [
        indent + "  ".join(pad(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
