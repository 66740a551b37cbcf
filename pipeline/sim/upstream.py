"""Where tickets come from: arrivals, the backlog they wait in, and how they look on the wire."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pipeline.clock import Clock
from pipeline.sim.behaviour import Behaviour, Stamp
from pipeline.sim.truth import TOKEN

ZONE = ZoneInfo("Asia/Shanghai")
ZONE_OFFSET = 8 * 3600.0
COUNTRIES = ("tw", "sg", "my", "th", "vn", "ph")
TYPE = "shopee_pdp"
RECENT_KEYS = 500
#: Item ids walk through their range by a step that shares no factor with it: none comes twice.
ITEM_BASE, ITEM_RANGE, ITEM_STEP = 10_000_000_000, 80_000_000_000, 104_729


@dataclass(frozen=True, slots=True)
class Offer:
    """A ticket as upstream keeps it."""

    number: int
    trace_id: str
    shop_id: int
    item_id: int
    country: str
    created: float

    @property
    def key(self) -> str:
        return f"{self.shop_id}:{self.item_id}:{self.country}"


class Upstream:
    """Arrivals are made up when somebody looks, not by a task: an idle world costs nothing."""

    def __init__(self, clock: Clock, rng: random.Random, name: str) -> None:
        self._clock = clock
        self._rng = rng
        # Ids hold the moment of the start: a daemon that remembers what it did before a restart must not
        # take a new world's tickets for the old one's.
        self._epoch = int(clock.now() * 1000)
        self._name = name
        self._number = 0
        self._next: float | None = None
        self._looked = clock.monotonic()
        self._backlog: deque[Offer] = deque()
        self._recent: deque[tuple[int, int, str]] = deque(maxlen=RECENT_KEYS)
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._backlog)

    def rate_changed(self) -> None:
        self._next = None

    def arrive(self, behaviour: Behaviour) -> None:
        """Let in everything that has arrived since the last look."""
        now = self._clock.monotonic()
        rate = behaviour.rate
        since, self._looked = self._looked, now
        if rate <= 0:
            return
        at = since + self._rng.expovariate(rate) if self._next is None else self._next
        at = self._skip(at, now, behaviour)
        while at <= now:
            self._admit(self._clock.now() - (now - at), behaviour)
            at += self._rng.expovariate(rate)
        self._next = at

    def take(self, count: int, behaviour: Behaviour) -> list[Offer]:
        self.arrive(behaviour)
        pop = self._backlog.popleft if behaviour.order == "fifo" else self._backlog.pop
        taken = [pop() for _ in range(min(count, len(self._backlog)))]
        if behaviour.repeat_share:
            self._backlog.extend(o for o in taken if self._rng.random() < behaviour.repeat_share)
        return taken

    def _skip(self, at: float, now: float, behaviour: Behaviour) -> float:
        """After a long sleep only the last `backlog_max` arrivals could still be here: skip the others."""
        missed = int((now - at) * behaviour.rate) - behaviour.backlog_max
        if missed <= 0:
            return at
        self.forgotten += missed
        return at + missed / behaviour.rate

    def _admit(self, arrived: float, behaviour: Behaviour) -> None:
        self._number += 1
        shop_id, item_id, country = self._identity(behaviour.duplicate_share)
        age = behaviour.age + (self._rng.random() * behaviour.age_spread if behaviour.age_spread else 0.0)
        trace = f"{self._name}-{self._epoch:x}-{self._number}"
        self._backlog.append(Offer(self._number, trace, shop_id, item_id, country, arrived - age))
        if len(self._backlog) > behaviour.backlog_max:
            self._backlog.popleft()
            self.forgotten += 1

    def _identity(self, duplicate_share: float) -> tuple[int, int, str]:
        if self._recent and self._rng.random() < duplicate_share:
            return self._rng.choice(self._recent)
        item_id = ITEM_BASE + (self._epoch * 7919 + self._number * ITEM_STEP) % ITEM_RANGE
        identity = (self._rng.randint(1_000_000, 999_999_999), item_id, self._rng.choice(COUNTRIES))
        self._recent.append(identity)
        return identity


def wire(offer: Offer, stamp: Stamp) -> dict[str, Any]:
    """The ticket as CONTRACT 1 shows it."""
    data = {
        "id": offer.number,
        "shop_id": offer.shop_id,
        "good_id": offer.item_id,
        "country": offer.country,
        "trace_id": offer.trace_id,
        "type": TYPE,
        "created_at": written(offer.created, stamp),
        "token": TOKEN + offer.trace_id,
    }
    return {"type": TYPE, "data": data}


def written(created: float, stamp: Stamp) -> str | int | float:
    match stamp:
        case "local":
            return datetime.fromtimestamp(created, ZONE).strftime("%Y-%m-%d %H:%M:%S")
        case "utc_wrong_zone":
            return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%d %H:%M:%S")
        case "iso":
            return datetime.fromtimestamp(created, ZONE).isoformat(timespec="seconds")
        case "epoch":
            return int(created)
        case "epoch_ms":
            return int(created * 1000)


def as_read(created: float, stamp: Stamp) -> float:
    """What a reader in Asia/Shanghai makes of `written`."""
    if stamp == "epoch_ms":
        return int(created * 1000) / 1000
    return float(int(created)) - (ZONE_OFFSET if stamp == "utc_wrong_zone" else 0.0)
