"""The panel's texts: the part of the two language files that a page needs, ready to send."""

from __future__ import annotations

from functools import cache

from aiohttp import web

from pipeline.texts import LANGUAGES, SPOKEN, Texts
from pipeline.web.replies import dumps

TEXTS_ROUTE = "/static/texts/{lang}.json"
#: The rest is said by the command line and in alerts.
GROUPS = frozenset(
    {
        "by",
        "detail",
        "duration",
        "event",
        "journal",
        "level",
        "mode",
        "outcome",
        "panel",
        "reason",
        "runbook",
        "stage",
        "state",
        "step",
    }
)


@cache
def panel_texts(lang: str) -> bytes:
    texts = Texts(lang)
    parts = [key.split(".", 1) for key in sorted(texts.keys())]
    said = {f"{group}.{word}": texts.name(group, word) for group, word in parts if group in GROUPS}
    return dumps(said if lang == SPOKEN else said | _patterns())


def _patterns() -> dict[str, str]:
    """The daemon says why in one language; by these the page knows which of its sentences it is."""
    spoken = Texts(SPOKEN)
    words = (key.split(".", 1) for key in sorted(spoken.keys()))
    return {f"pattern.{word}": spoken.name(group, word) for group, word in words if group == "detail"}


async def send_texts(request: web.Request) -> web.Response:
    lang = request.match_info["lang"]
    if lang not in LANGUAGES:
        raise web.HTTPNotFound
    response = web.Response(body=panel_texts(lang), content_type="application/json")
    response.enable_compression()
    return response
