"""What waits to be said: urgent first, one by one while there is room, the rest merged into one message."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from pipeline.alerts.wording import TEXT_BYTES_MAX, Alert, Edge, cut
from pipeline.texts import Texts

WAITING_MAX = 200
URGENT_MAX = 20
GROUPS_MAX = 200


@dataclass(slots=True, eq=False)
class Message:
    text: str
    opens: frozenset[str] = frozenset()  # troubles that this message reports and does not end
    tries: int = 0
    due: float = 0.0


@dataclass(slots=True)
class Group:
    """Everything that happened to one trouble, as one line of a digest."""

    title: str
    count: int = 0
    last: Edge = Edge.FIRE

    def add(self, alert: Alert) -> None:
        self.count += alert.edge is not Edge.RECOVER
        self.last = alert.edge


class Outbox:
    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._urgent: deque[Alert] = deque()
        self._waiting: deque[Alert] = deque()
        self._folded: dict[str, Group] = {}

    def add(self, alert: Alert) -> None:
        line, limit = (self._urgent, URGENT_MAX) if alert.urgent else (self._waiting, WAITING_MAX)
        if len(line) >= limit:
            self._fold(line)
        line.append(alert)

    def take(self, urgent: bool, places: int) -> Message | None:
        """The next message of its class. The last place carries everything that is left."""
        if urgent:
            return _single(self._urgent.popleft()) if self._urgent else None
        if self._folded or (places == 1 and len(self._waiting) > 1):
            self._fold(self._waiting)
            return self._digest()
        return _single(self._waiting.popleft()) if self._waiting else None

    def has(self, urgent: bool) -> bool:
        return bool(self._urgent) if urgent else bool(self._waiting or self._folded)

    def clear(self) -> None:
        self._urgent.clear()
        self._waiting.clear()
        self._folded.clear()

    def forget(self, key: str) -> bool:
        """The message that opened this trouble was lost: its end, if that waits, would puzzle people.

        True if something else about it still waits."""
        for line in (self._urgent, self._waiting):
            about = [alert for alert in line if alert.key == key]
            if about and about[0].edge is Edge.RECOVER:
                line.remove(about[0])
                return True
            if about:
                return True
        return key in self._folded

    def _fold(self, line: deque[Alert]) -> None:
        while line:
            alert = line.popleft()
            if alert.key not in self._folded and len(self._folded) >= GROUPS_MAX:
                self._folded.pop(next(iter(self._folded)))
            self._folded.setdefault(alert.key, Group(alert.title)).add(alert)

    def _digest(self) -> Message:
        groups, self._folded = self._folded, {}
        opens = frozenset(key for key, group in groups.items() if group.last is Edge.FIRE)
        count = sum(max(1, group.count) for group in groups.values())
        head = self._texts.say("alert.digest.head", count=count)
        return Message(self._fit(head, [self._line(group) for group in groups.values()]), opens)

    def _line(self, group: Group) -> str:
        if not group.count:  # its beginning was told in a message of its own
            return self._texts.say("alert.digest.ended", title=group.title)
        state = self._texts.say(f"alert.digest.{group.last}")
        return self._texts.say("alert.digest.line", title=group.title, count=group.count, state=state)

    def _fit(self, head: str, lines: list[str]) -> str:
        """As many whole lines as there is room for, and how many there was none for."""
        for left_out in range(len(lines)):
            shown = lines[: len(lines) - left_out]
            tail = [self._texts.say("alert.digest.more", count=left_out)] if left_out else []
            text = "\n".join([head, *shown, *tail])
            if _size(text) <= TEXT_BYTES_MAX:
                return text
        return cut("\n".join([head, *lines]))


def _single(alert: Alert) -> Message:
    return Message(alert.text, frozenset({alert.key}) if alert.edge is Edge.FIRE else frozenset())


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
