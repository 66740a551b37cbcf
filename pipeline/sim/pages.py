"""Product pages as the provider sends them: 80-110 KB of JSON with Chinese text, escapes and plain ASCII.

Making such a page costs milliseconds, so a few are made once; serving one splices its ids in, one copy.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable

import orjson

VARIANTS = 8
PREFIX = b'{"_success":true,"response":'
SUFFIX = b"}"
HEAD = 105  # bytes around the tail, ids of the usual length included
_WORDS = (
    "現貨", "免運", "台灣出貨", "夏季新款", "純棉", "短袖", "防水", "藍牙耳機", "充電線", "手機殼",
    "超值", "限時特價",
    "官方正品", "ready", "stock", "original", "free", "shipping", "cotton", "wireless",
    "USB-C", "100%", "new", "2-pack", "ไทย", "hàng", "mới",
)  # fmt: skip
_EMOJI = "🔥✨📦💯"


class PageMaker:
    def __init__(self, seed: int, size_min: int = 80_000, size_max: int = 110_000) -> None:
        rng = random.Random(seed)
        self._tails = [_tail(rng, rng.randint(size_min, size_max)) for _ in range(VARIANTS)]

    def answer(self, shop_id: object, item_id: object, country: str) -> bytes:
        """The whole answer. The same ids always give the same page."""
        item = _id(item_id)
        tail = self._tails[zlib.crc32(item) % VARIANTS]
        place = orjson.dumps(country)
        return b"".join(
            (
                PREFIX,
                b'{"data":{"item":{"itemid":',
                item,
                b',"shopid":',
                _id(shop_id),
                b',"country":',
                place,
                tail,
            )
        )


def response_of(answer: bytes) -> bytes:
    """The `response` object of an answer of ours."""
    return answer[len(PREFIX) : -len(SUFFIX)]


def _id(value: object) -> bytes:
    text = str(value)
    plain = text.isascii() and text.isdigit() and (text == "0" or text[0] != "0")
    return text.encode() if plain else orjson.dumps(text)


def _tail(rng: random.Random, size: int) -> bytes:
    """All that follows the ids, so that the whole answer is about `size` bytes."""
    pieces = [b',"title":' + orjson.dumps(_phrase(rng, 6)), b',"price_min":%d' % rng.randint(100, 9999)]
    # Plain-ASCII JSON with escapes: some of the provider's own back ends write it so.
    pieces.append(b',"brand":' + json.dumps(_phrase(rng, 1)).encode())
    room = size - HEAD - sum(map(len, pieces))
    pieces.append(b',"images":[' + _filled(rng, _image, room // 8) + b"]")
    pieces.append(b',"models":[' + _filled(rng, _model, room // 2) + b"]")
    field = b',"description":'
    used = HEAD + sum(map(len, pieces)) + len(field)
    pieces.append(field + _description(rng, max(2, size - used)))
    return b"".join(pieces) + b"}}}" + SUFFIX


def _filled(rng: random.Random, make: Callable[[random.Random], bytes], room: int) -> bytes:
    """As many entries as fit."""
    entries: list[bytes] = []
    while True:
        entry = make(rng)
        room -= len(entry) + 1
        if room < 0:
            break
        entries.append(entry)
    return b",".join(entries)


def _phrase(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(words)) + rng.choice(_EMOJI)


def _image(rng: random.Random) -> bytes:
    return b'"%032x"' % rng.getrandbits(128)


def _model(rng: random.Random) -> bytes:
    price = rng.randint(10_000, 90_000_000)
    model = {
        "modelid": rng.randint(10**9, 10**12),
        "name": f'{_phrase(rng, 2)} "{rng.choice("SMLX")}"',
        "price": price,
        "price_before_discount": price + rng.randint(0, 90_000),
        "stock": rng.randint(0, 500),
        "tier_index": [rng.randint(0, 9), rng.randint(0, 9)],
        "extinfo": None,
    }
    return orjson.dumps(model) if rng.random() < 0.8 else json.dumps(model).encode()


def _description(rng: random.Random, size: int) -> bytes:
    """Lines of text with quotes, tabs and line breaks, padded to exactly `size` bytes with its quotes."""
    lines: list[bytes] = []
    room = size - 2
    while True:
        line = orjson.dumps(f'● {_phrase(rng, 5)} "{rng.randint(1, 99)}\t℃" \\ {rng.random():.6f}\n')[1:-1]
        if len(line) > room:
            break
        lines.append(line)
        room -= len(line)
    return b'"' + b"".join(lines) + b"." * room + b'"'
