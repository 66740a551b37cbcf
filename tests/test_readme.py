"""The READMEs say the same in two languages, and what they name exists."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from pydantic import BaseModel

from pipeline.alerts.wording import HOLDS
from pipeline.config import Settings
from pipeline.control.gate import Reason
from pipeline.reload import is_live

ROOT = Path(__file__).parent.parent
NAMES = ("README.md", "README.zh.md")
ENGLISH, CHINESE = ((ROOT / name).read_text(encoding="utf-8") for name in NAMES)
BOTH = pytest.mark.parametrize("text", [ENGLISH, CHINESE], ids=NAMES)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r"`((?:daemon|web|journal|alerts|lanes)(?:\.[\w<>]+)*)`")
#: Files that look like keys.
_FILES = {"journal.db", "journal.key"}


def prose(text: str) -> str:
    return _FENCE.sub("", text)


def headings(text: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"^(#+) ", prose(text), re.MULTILINE)]


def blocks(text: str) -> list[tuple[str, list[str]]]:
    """Language and lines of every code block, without remarks, which are translated."""
    found = []
    for language, body in _FENCE.findall(text):
        lines = [re.sub(r"(^|\s+)# .*", "", line) for line in body.splitlines()]
        found.append((language, [line for line in lines if line.strip()]))
    return found


def commands(text: str) -> list[tuple[str, list[str]]]:
    """A drawing has no language, and its labels are translated: only that it is there is compared."""
    return [(language, lines if language else []) for language, lines in blocks(text)]


def widened(line: str) -> str:
    return "".join(mark * 2 if unicodedata.east_asian_width(mark) in "WF" else mark for mark in line)


def tables(text: str) -> list[list[str]]:
    return [found.splitlines() for found in re.findall(r"(?:^\|.*\n)+", prose(text), re.MULTILINE)]


def anchors(text: str) -> list[str]:
    return re.findall(r'<a id="([^"]+)"></a>', text)


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", prose(text))


def tables_of_keys(text: str) -> list[dict[str, list[str]]]:
    """The two tables of configuration, in order: full keys by section.

    The first column names the section, the last one its keys without it.
    """
    chapter = text.split('<a id="configuration"></a>')[1].split('<a id="operations"></a>')[0]
    tables: list[dict[str, list[str]]] = []
    for line in chapter.splitlines():
        if line.startswith("|--"):
            tables.append({})
        elif line.startswith("| `"):
            cells = line.split("|")
            section = cells[1].strip(" `")
            tables[-1][section] = [f"{section}.{key}" for key in re.findall(r"`([^`]+)`", cells[-2])]
    return tables


def keys_in_tables(text: str) -> set[str]:
    return {key for found in tables_of_keys(text) for keys in found.values() for key in keys}


def live_keys(text: str) -> set[str]:
    """The keys of the second table: what SIGHUP changes. A window is named there as what it does not."""
    return {key for keys in tables_of_keys(text)[1].values() for key in keys if not key.endswith(".window")}


def known_keys(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every section and key, with <lane> for a lane's name."""
    for name, field in model.model_fields.items():
        here = f"{path}.{name}" if path else name
        kind: Any = field.annotation
        if get_origin(kind) is dict and name == "lanes":
            here, kind = f"{here}.<lane>", get_args(kind)[1]
        yield here
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from known_keys(kind, here)


def test_both_languages_have_the_same_headings() -> None:
    assert headings(ENGLISH) == headings(CHINESE)


def test_both_languages_show_the_same_commands() -> None:
    assert commands(ENGLISH) == commands(CHINESE)


def test_both_languages_draw_the_same_holds() -> None:
    english, chinese = (
        [re.findall(r"\b\w+\b", " ".join(lines)) for language, lines in blocks(text) if not language]
        for text in (ENGLISH, CHINESE)
    )
    reasons = [[word for word in words if word in set(Reason)] for words in english]
    assert set(reasons[0]) == set(Reason)
    assert reasons == [[word for word in words if word in set(Reason)] for words in chinese]


@BOTH
def test_the_drawing_is_in_line_where_a_chinese_character_is_two_wide(text: str) -> None:
    (_, drawing), *_ = [block for block in blocks(text) if not block[0]]
    rows = [line for line in drawing if "│" in line and line.count("│") >= 8]
    assert rows
    edges = [[at for at, mark in enumerate(widened(row)) if mark == "│"] for row in rows]
    assert all(found[:2] == edges[0][:2] and found[-2:] == edges[0][-2:] for found in edges)


@BOTH
def test_the_line_of_contents_names_the_chapters_in_their_order(text: str) -> None:
    (line,) = [line for line in text.splitlines() if line.startswith("[") and line.count(" · ") > 5]
    named = re.findall(r"\]\(#([^)]+)\)", line)
    assert named == [anchor for anchor in anchors(text) if anchor in named]


def test_both_languages_have_the_same_tables_with_the_same_numbers() -> None:
    assert [len(rows) for rows in tables(ENGLISH)] == [len(rows) for rows in tables(CHINESE)]
    numbers = [
        re.findall(r"\d+(?:[,.]\d+)*", text.split("numbers:begin")[1].split("numbers:end")[0])
        for text in (ENGLISH, CHINESE)
    ]
    assert sorted(numbers[0]) == sorted(numbers[1])


def test_both_languages_have_the_same_anchors_links_and_keys() -> None:
    swapped = {"README.md": "README.zh.md"}
    assert anchors(ENGLISH) == anchors(CHINESE)
    assert sorted(links(ENGLISH)) == sorted(swapped.get(link, link) for link in links(CHINESE))
    assert keys_in_tables(ENGLISH) == keys_in_tables(CHINESE)


@BOTH
def test_the_runbook_has_an_entry_for_every_hold(text: str) -> None:
    assert {f"hold-{reason}" for reason in Reason} == {a for a in anchors(text) if a.startswith("hold-")}


@BOTH
def test_every_key_in_a_table_is_configuration(text: str) -> None:
    named = keys_in_tables(text)
    assert len(named) > 50
    assert named - set(known_keys(Settings)) == set()
    sections = {section for found in tables_of_keys(text) for section in found}
    assert sections - set(known_keys(Settings)) == set()


@BOTH
def test_every_key_in_a_sentence_is_configuration(text: str) -> None:
    named = {key.replace("lanes.shopee.", "lanes.<lane>.") for key in _KEY.findall(prose(text))} - _FILES
    assert len(named) > 20
    assert named - set(known_keys(Settings)) == set()


@BOTH
def test_every_key_said_to_be_live_is_live(text: str) -> None:
    named = live_keys(text)
    assert len(named) > 20
    assert [key for key in sorted(named) if key.count(".") in (1, 3) and not is_live(key)] == []


@BOTH
def test_every_link_leads_somewhere(text: str) -> None:
    for link in links(text):
        if link.startswith("#"):
            assert link[1:] in anchors(text), link
        elif not link.startswith(("http://", "https://")):
            assert (ROOT / link).exists(), link


@BOTH
def test_the_place_for_the_measured_numbers_is_marked(text: str) -> None:
    assert text.count("<!-- numbers:begin -->") == text.count("<!-- numbers:end -->") == 1
    assert text.index("<!-- numbers:begin -->") < text.index("<!-- numbers:end -->")


@BOTH
def test_what_the_runbook_changes_by_sighup_is_live(text: str) -> None:
    live = {key.split(".")[-1] for key in known_keys(Settings) if is_live(key)}
    steps = re.findall(r"^- \*\*.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    changed = [key for step in steps if "SIGHUP" in step for key in re.findall(r"`[\w.<>]*?(\w+)`", step)]
    assert changed
    assert [key for key in changed if key not in live] == []


@BOTH
def test_every_hold_that_is_alerted_is_named_among_the_alerts(text: str) -> None:
    alerts = text.split("tidegate alert test")[1].split("\n## ")[0]
    assert {f"#hold-{reason}" for reason in HOLDS} - set(links(alerts)) == set()
