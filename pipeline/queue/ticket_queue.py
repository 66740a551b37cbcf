"""The queue between pull and query: one paid query per key, whoever asks for it.

A key is in flight from its first ticket's arrival until every ticket of it has ended. A second ticket
with the key joins the first: it costs no query and gets a callback of its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pipeline.clock import Clock
from pipeline.config import QueueConfig
from pipeline.queue.dedupe import ProcessedKeys
from pipeline.queue.line import Line
from pipeline.ticket import Ticket


class Offer(StrEnum):
    QUEUED = "queued"
    JOINED = "joined"  # waits for the first ticket's answer
    ANSWERED = "answered"  # joins one that has its answer: straight to the callback
    DUPLICATE = "duplicate"


class TicketQueue:
    def __init__(self, config: QueueConfig, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self.line = Line(clock, config.order)
        self.processed = ProcessedKeys(config.bucket_keys)
        self._leaders: dict[str, Ticket] = {}
        self._open: dict[str, int] = {}  # tickets of the key that have not ended
        self._traces: set[tuple[str, str]] = set()
        self._delivered: dict[str, list[str]] = {}  # traces of keys that others keep in flight

    @property
    def depth(self) -> int:
        return len(self.line)

    @property
    def keys_in_flight(self) -> int:
        return len(self._leaders)

    def leader(self, key: str) -> Ticket | None:
        return self._leaders.get(key)

    def offer(self, ticket: Ticket, again: bool = False) -> Offer:
        """`again` = an earlier run took it in: it stays in whatever the rules are now, and its key may be
        done, by one that it joined."""
        leader = self._leaders.get(ticket.key)
        if leader is None:
            if not again and ticket.key in self.processed:
                return Offer.DUPLICATE
            self._admit(ticket)
            self._leaders[ticket.key] = ticket
            self.line.put(ticket)
            return Offer.QUEUED
        if not self._may_join(ticket, again):
            return Offer.DUPLICATE
        self._admit(ticket)
        if leader.answer is not None:
            ticket.answer = leader.answer
            return Offer.ANSWERED
        leader.followers.append(ticket)
        return Offer.JOINED

    def adopt(self, ticket: Ticket) -> None:
        """A ticket of an earlier run that has its answer: it waits to be called back, not to be asked."""
        self._admit(ticket)
        self._leaders.setdefault(ticket.key, ticket)

    def _may_join(self, ticket: Ticket, again: bool) -> bool:
        if (ticket.key, ticket.trace_id) in self._traces:
            return False
        return again or (
            self.config.dedupe == "join"
            and self._open[ticket.key] + len(self._delivered.get(ticket.key, ())) < self.config.joined_max
        )

    def _admit(self, ticket: Ticket) -> None:
        self._traces.add((ticket.key, ticket.trace_id))
        self._open[ticket.key] = self._open.get(ticket.key, 0) + 1

    def leave(self, ticket: Ticket, delivered: bool) -> None:
        """This ticket has ended. The key is free once all of its tickets have.

        Until then a delivered trace is remembered: handed out again, it must not join those still in flight.
        """
        key = ticket.key
        if delivered:
            self.processed.add(key)
        left = self._open[key] - 1
        if left and delivered:
            self._delivered.setdefault(key, []).append(ticket.trace_id)
        else:
            self._traces.discard((key, ticket.trace_id))
        if left:
            self._open[key] = left
            return
        del self._open[key]
        del self._leaders[key]
        for trace in self._delivered.pop(key, ()):
            self._traces.discard((key, trace))

    def promote(self, leader: Ticket) -> Ticket | None:
        """The leader has ended without an answer: the first that joined takes its place at the front.

        The one that joined is younger: it has not lost its time because another did.
        """
        if not leader.followers:
            return None
        heir, *rest = leader.followers
        leader.followers = []
        heir.followers = rest
        heir.queries, heir.faults, heir.crashes = leader.queries, leader.faults, leader.crashes
        self._leaders[heir.key] = heir
        self.line.put_first(heir)
        return heir

    def status(self) -> dict[str, Any]:
        return {
            "pending": self.line.pending,
            "delayed": self.line.delayed,
            "keys": self.keys_in_flight,
            "high_water": self.config.high_water,
            "low_water": self.config.low_water,
            "processed_keys": len(self.processed),
            "oldest_age": round(self.oldest_age(), 1),
        }

    def oldest_age(self) -> float:
        now = self._clock.now()
        return max((ticket.age(now) for ticket in self.line), default=0.0)

    def waiting_tickets(self) -> int:
        return sum(ticket.party for ticket in self.line)
