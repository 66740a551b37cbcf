"""How much and how long: every bound of the journal in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Limits:
    group_seconds: float = 0.02  # a row waits this long for others
    # A group costs the loop the same whatever its size: with 100 KB answers at full rate the journal leaves
    # 0.91 of the tickets/s in groups of 20 ms, 0.95 in groups of 50 ms.
    busy_seconds: float = 0.05  # a row waits this long if the last group was large
    busy_rows: int = 300
    group_rows: int = 5000  # or until so many have gathered
    group_bytes: int = 4 << 20
    rows_max: int = 200_000  # kept in memory while the database is in trouble; steps only half of it
    bytes_max: int = 64 << 20  # of answers in memory on their way to disk
    lock_seconds: float = 2.0  # for another process to let go of the database
    retry_first: float = 0.25  # back-off while in trouble
    retry_max: float = 5.0
    close_seconds: float = 5.0  # for the last rows at the end
    prune_every: float = 5.0
    prune_rows: int = 500  # tickets in one transaction
    size_max: int = 4 << 30  # the oldest traces go when the file's content is larger
    wal_max: int = 64 << 20  # the log is cut back to this after a checkpoint
    check_max: int = 64 << 20  # a larger file is checked at start only after an unclean end
    history_days: float = 30
    synchronous: Literal["FULL", "NORMAL"] = "FULL"
