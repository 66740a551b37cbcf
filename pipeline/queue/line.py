"""A waiting line: ready items in an order, delayed ones until their moment, and nobody polling.

One timer stands on the earliest due moment. Due items go ahead of the ready ones: they are older, and
what was already paid for them is waiting to be used.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from pipeline.clock import Clock
from pipeline.ticket import Ticket


class _Ready(Protocol):
    def push(self, ticket: Ticket, /) -> None: ...
    def take(self) -> Ticket: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Ticket]: ...
    def keep(self, wanted: Callable[[Ticket], bool]) -> None: ...


class _Fifo(deque[Ticket]):
    push = deque.append
    take = deque.popleft

    def keep(self, wanted: Callable[[Ticket], bool]) -> None:
        kept = [ticket for ticket in self if wanted(ticket)]
        self.clear()
        self.extend(kept)


class _Lifo(_Fifo):
    take = deque.pop


class _Ranked:
    def __init__(self, rank: Callable[[Ticket], float]) -> None:
        self._rank = rank
        self._heap: list[tuple[float, int, Ticket]] = []
        self._arrivals = count()

    def push(self, ticket: Ticket) -> None:
        heappush(self._heap, (self._rank(ticket), next(self._arrivals), ticket))

    def take(self) -> Ticket:
        return heappop(self._heap)[2]

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Ticket]:
        return (entry[2] for entry in self._heap)

    def keep(self, wanted: Callable[[Ticket], bool]) -> None:
        self._heap = [
            (self._rank(ticket), arrived, ticket) for _, arrived, ticket in self._heap if wanted(ticket)
        ]
        heapify(self._heap)


def _ready(order: str) -> _Ready:
    match order:
        case "lifo":
            return _Lifo()
        case "deadline":
            return _Ranked(lambda ticket: ticket.created)
        case "priority":
            return _Ranked(lambda ticket: -ticket.priority)
        case _:
            return _Fifo()


class Line:
    def __init__(self, clock: Clock, order: str = "fifo") -> None:
        self._clock = clock
        self._ready = _ready(order)
        self._urgent: deque[Ticket] = deque()
        self._delayed: list[tuple[float, int, Ticket]] = []
        self._arrivals = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self.on_ready: Callable[[int], None] = lambda number: None

    @property
    def pending(self) -> int:
        return len(self._ready) + len(self._urgent)

    @property
    def delayed(self) -> int:
        return len(self._delayed)

    def __len__(self) -> int:
        return len(self._ready) + len(self._urgent) + len(self._delayed)

    def __iter__(self) -> Iterator[Ticket]:
        yield from self._urgent
        yield from self._ready
        for entry in self._delayed:
            yield entry[2]

    def put(self, ticket: Ticket) -> None:
        self._ready.push(ticket)
        self.on_ready(1)

    def put_all(self, tickets: Sequence[Ticket], wake: int) -> None:
        """With so many slots woken for them."""
        for ticket in tickets:
            self._ready.push(ticket)
        if wake:
            self.on_ready(wake)

    def put_first(self, ticket: Ticket) -> None:
        self._urgent.append(ticket)
        self.on_ready(1)

    def delay(self, ticket: Ticket, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        heappush(self._delayed, (due, next(self._arrivals), ticket))
        self._set_timer()

    def take(self) -> Ticket | None:
        if self._urgent:
            return self._urgent.popleft()
        return self._ready.take() if len(self._ready) else None

    def waiting(self) -> list[Ticket]:
        """Those whose moment has not come, the latest first."""
        return [entry[2] for entry in sorted(self._delayed, reverse=True)]

    def remove(self, unwanted: Callable[[Ticket], bool]) -> list[Ticket]:
        """Take out all that match, wherever they wait."""
        removed = [ticket for ticket in self if unwanted(ticket)]
        if removed:
            gone = set(map(id, removed))
            self._ready.keep(lambda ticket: id(ticket) not in gone)
            self._urgent = deque(ticket for ticket in self._urgent if id(ticket) not in gone)
            self._delayed = [entry for entry in self._delayed if id(entry[2]) not in gone]
            heapify(self._delayed)
        return removed

    def rank_anew(self) -> None:
        """The tickets' dates have changed, and with them perhaps their order."""
        self._ready.keep(lambda ticket: True)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if not self._delayed:
            return
        due = self._delayed[0][0]
        if self._timer is not None:
            if due >= self._timer_due:
                return
            self._timer.cancel()
        self._timer_due = due
        wait = max(0.0, due - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(wait, self._release_due)

    def _release_due(self) -> None:
        self._timer = None
        # A timer may fire a clock tick early; half a millisecond of grace spares arming it twice.
        now = self._clock.monotonic() + 0.0005
        released = 0
        while self._delayed and self._delayed[0][0] <= now:
            self._urgent.append(heappop(self._delayed)[2])
            released += 1
        if released:
            self.on_ready(released)
        self._set_timer()
