"""Whether SQLite's write-ahead log lost committed rows to damage.

SQLite reads the log up to the first frame whose checksum is wrong and says nothing about the rest. That is
right for the torn end of a crash, and silent loss when a frame in the middle is damaged. A commit that
follows, of the same generation, tells the two apart.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
MAGICS = frozenset({0x377F0682, 0x377F0683})


@dataclass(frozen=True, slots=True)
class LogSeen:
    """What the file says, before SQLite has judged it."""

    readable: bool = True  # its header makes sense
    last_commit: int = 0  # number of the last frame that ends a transaction

    def is_damaged(self, frames_used: int) -> bool:
        return not self.readable or self.last_commit > frames_used


def look(path: Path) -> LogSeen:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return LogSeen()
    if size < HEADER_BYTES + FRAME_HEADER_BYTES:
        return LogSeen()
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        magic, _, page_size, _, *salts, sum_1, sum_2 = struct.unpack(">8I", header)
        if magic not in MAGICS or (sum_1, sum_2) != _checksum(header[:24], magic & 1 == 1):
            return LogSeen(readable=False)
        step, last = FRAME_HEADER_BYTES + page_size, 0
        for number in range(1, (size - HEADER_BYTES) // step + 1):
            file.seek(HEADER_BYTES + (number - 1) * step)
            _, commit, *frame_salts = struct.unpack(">4I", file.read(16))
            if commit and frame_salts == salts:
                last = number
    return LogSeen(last_commit=last)


def _checksum(data: bytes, big: bool) -> tuple[int, int]:
    words = struct.unpack(f"{'>' if big else '<'}{len(data) // 4}I", data)
    one = two = 0
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
