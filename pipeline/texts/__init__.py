"""Everything the product says to people, by key, in Chinese and English."""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files

LANGUAGES = ("zh", "en")
#: What the daemon writes into holds and events.
SPOKEN = "en"


class Texts:
    def __init__(self, lang: str) -> None:
        if lang not in LANGUAGES:
            raise ValueError(f"no texts in {lang!r}: one of {', '.join(LANGUAGES)}")
        self.lang = lang
        source = files(__name__).joinpath(f"{lang}.json").read_text(encoding="utf-8")
        self._templates: dict[str, str] = json.loads(source)

    def __contains__(self, key: str) -> bool:
        return key in self._templates

    def say(self, key: str, /, **values: object) -> str:
        return self._templates[key].format(**values)

    def duration(self, seconds: float) -> str:
        whole = round(seconds)
        if whole < 60:
            return self.say("duration.seconds", seconds=whole)
        if whole < 3600:
            return self.say("duration.minutes", minutes=whole // 60, seconds=whole % 60)
        return self.say("duration.hours", hours=whole // 3600, minutes=whole % 3600 // 60)

    def name(self, group: str, word: object) -> str:
        """What people call one of our words ("mode", "half_open"); a word we have no text for, as it is."""
        return self._templates.get(f"{group}.{word}", str(word))

    def retold(self, group: str, said: str) -> str:
        """One of the daemon's own sentences in this language; one that we have no text for, as it is."""
        for pattern, key in _sentences(group):
            if found := pattern.fullmatch(said):
                return self.say(key, **found.groupdict())
        return said

    def who(self, by: str) -> str:
        """Who did it: "api 127.0.0.1", "drop rate", "query"."""
        whole = by.replace(" ", "_")
        for group in ("by", "stage", "reason"):
            if f"{group}.{whole}" in self._templates:
                return self.name(group, whole)
        word, space, rest = by.partition(" ")
        return self.name("by", word) + space + rest

    def keys(self) -> frozenset[str]:
        return frozenset(self._templates)


@cache
def _sentences(group: str) -> list[tuple[re.Pattern[str], str]]:
    """In the order of the file: one that says more stands before one that would match it too."""
    spoken = Texts(SPOKEN)._templates
    return [
        (re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(text))), key)
        for key, text in spoken.items()
        if key.startswith(f"{group}.")
    ]
