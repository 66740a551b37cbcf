"""Both languages say the same things."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

import pipeline
from pipeline.alerts.wording import HOLDS, OF_A_STAGE
from pipeline.events import Kind
from pipeline.texts import LANGUAGES, Texts

SOURCES = Path(pipeline.__file__).parent


def _fields(texts: Texts, key: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(texts._templates[key]) if name}


def test_every_language_has_the_same_keys_and_the_same_values_in_them() -> None:
    chinese, english = (Texts(lang) for lang in LANGUAGES)
    keys = chinese.keys()
    assert keys == english.keys()
    assert [key for key in keys if _fields(chinese, key) != _fields(english, key)] == []


def test_a_key_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(KeyError):
        Texts("zh").say("no.such.key")


def test_a_language_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="fr"):
        Texts("fr")


def test_every_key_named_in_the_sources_exists() -> None:
    said = re.compile(r"\bsay\(\s*\"([a-z0-9_.]+)\"")
    named = {key for file in SOURCES.rglob("*.py") for key in said.findall(file.read_text(encoding="utf-8"))}
    assert named
    assert named - Texts("zh").keys() == set()


def test_every_alerted_hold_has_its_texts() -> None:
    keys = Texts("zh").keys()
    for cause in (*HOLDS, "breaker", "clock_skew"):
        assert {f"alert.{cause}.{part}" for part in ("title", "fire", "recover")} <= keys
    for cause in OF_A_STAGE:
        assert {f"alert.{cause}.{part}" for part in ("title", "fire")} <= keys


def test_every_kind_of_event_has_its_text() -> None:
    assert {f"event.{kind}" for kind in Kind} <= Texts("zh").keys()


@pytest.mark.parametrize(
    ("group", "said", "told"),
    [
        ("detail", "200 faults in a row", "连续 200 次故障"),
        ("detail", "credit is out: code 7: none", "额度用尽：code 7: none"),
        ("detail", "nobody has words for this", "nobody has words for this"),
        ("releases", "operator, or after 60 s", "人工，或 60 秒后"),
        ("releases", "by itself below half", "降到一半以下自动"),
        ("releases", "by itself below 100", "低于 100 自动"),
    ],
)
def test_what_the_daemon_says_is_retold_in_the_readers_language(group: str, said: str, told: str) -> None:
    assert Texts("zh").retold(group, said) == told
    assert Texts("en").retold(group, said) == said


def test_who_did_it_is_named_in_the_readers_language() -> None:
    named = [Texts("zh").who(by) for by in ("api ::1", "drop rate", "query", "SIGTERM")]
    assert named == ["接口 ::1", "丢弃率过高", "查询", "SIGTERM"]
