"""Half of an emoji: what a cut in the middle of a surrogate pair leaves in JSON text.

JavaScript's `substring` makes it, JSON allows its escape, and no reader of UTF-8 takes it. One in one title
must not cost a whole answer, or a whole list of tickets.
"""

from __future__ import annotations

import re

#: Every escape in JSON text; `half` is one half of a surrogate pair without the other.
_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)


def mended(text: bytes | bytearray) -> bytes:
    """The same JSON with a replacement character for each half."""
    return _ESCAPES.sub(_mend, text)


def _mend(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape["half"] else escape[0]
