"""The panel's texts: the part of the two language files that a page needs, ready to send."""

from __future__ import annotations

from functools import cache

from aiohttp import web

from pipeline.texts import LANGUAGES, Texts
from pipeline.web.replies import dumps

TEXTS_ROUTE = "/static/texts/{lang}.json"
#: The rest is said by the command line and in alerts.
GROUPS = frozenset(
    {
        "by",
        "duration",
        "event",
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
    parts = (key.split(".", 1) for key in sorted(texts.keys()))
    return dumps({f"{group}.{word}": texts.name(group, word) for group, word in parts if group in GROUPS})


async def send_texts(request: web.Request) -> web.Response:
    lang = request.match_info["lang"]
    if lang not in LANGUAGES:
        raise web.HTTPNotFound
    response = web.Response(body=panel_texts(lang), content_type="application/json")
    response.enable_compression()
    return response
