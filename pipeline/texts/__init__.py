"""Everything the product says to people, by key, in Chinese and English."""

from __future__ import annotations

import json
from importlib.resources import files

LANGUAGES = ("zh", "en")


class Texts:
    def __init__(self, lang: str) -> None:
        if lang not in LANGUAGES:
            raise ValueError(f"no texts in {lang!r}: one of {', '.join(LANGUAGES)}")
        self.lang = lang
        source = files(__name__).joinpath(f"{lang}.json").read_text(encoding="utf-8")
        self._templates: dict[str, str] = json.loads(source)

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

    def keys(self) -> frozenset[str]:
        return frozenset(self._templates)
