"""What really happened, as the outside saw it. The daemon's own counters are judged against this.

Memory is bounded: a trace or key that is older than `KEEP` seconds is forgotten and only counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from typing import Any

import orjson

from pipeline.clock import Clock

DEADLINE = 300.0  # a callback later than this after the ticket's creation is worth nothing
KEEP = 900.0
CHECK_EVERY = 50  # one result in so many is parsed
MESSAGES_MAX = 20
TOKEN = "tok-"

#: Counts that `summary()` always shows, so that a zero is visible too.
COUNTS = (
    "pulls", "handed_out", "repeats", "lost_in_pull", "lost_upstream", "unique_keys",
    "queries", "processing", "throttled", "paid", "paid_again", "paid_cut_off", "keys_delivered",
    "callbacks", "delivered", "on_time", "late", "twice", "again_after_cut",
    "unknown", "wrong_token", "results_checked", "bad_results", "protocol_errors", "alerts",
)  # fmt: skip


@dataclass(slots=True)
class TraceTruth:
    key: str
    page: tuple[str, str]  # shop and item
    created: float
    handed_out: float
    delivered: float | None = None
    cut_off: bool = False  # accepted, but our answer to that broke off


@dataclass(slots=True)
class KeyTruth:
    seen: float
    newest: float = 0.0  # creation of the youngest ticket with this key
    queries: int = 0
    open: int = 0
    paid: bool = False
    delivered: bool = False


class Truth:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.counts: Counter[str] = Counter()
        self.maxima: dict[str, float] = dict.fromkeys(
            ("concurrent_same_key", "queries_in_flight", "callbacks_in_flight", "first_query_age",
             "later_query_age", "delivered_age", "handed_out_age"), 0.0,
        )  # fmt: skip
        self.messages: deque[str] = deque(maxlen=MESSAGES_MAX)
        self._traces: OrderedDict[str, TraceTruth] = OrderedDict()
        self._keys: OrderedDict[str, KeyTruth] = OrderedDict()
        self._queries_open = 0
        self._callbacks_open = 0
        self._age_sum = 0.0

    # upstream

    def handed_out(self, trace: str, key: str, page: tuple[str, str], created: float) -> None:
        now = self._clock.now()
        if trace in self._traces:
            self.counts["repeats"] += 1
            return
        self.counts["handed_out"] += 1
        self._peak("handed_out_age", now - created)
        self._traces[trace] = TraceTruth(key, page, created, now)
        known = self._key(key)
        known.newest = max(known.newest, created)
        self._forget(now)

    # provider

    def query_begins(self, key: str) -> None:
        known = self._key(key)
        known.queries += 1
        known.open += 1
        self._queries_open += 1
        self.counts["queries"] += 1
        self._peak("concurrent_same_key", known.open)
        self._peak("queries_in_flight", self._queries_open)
        if known.newest:
            # Of several tickets with one key the youngest counts: an age reported here is never too high.
            age = self._clock.now() - known.newest
            self._peak("first_query_age" if known.queries == 1 else "later_query_age", age)

    def query_ends(self, key: str) -> None:
        self._key(key).open -= 1
        self._queries_open -= 1

    def paid(self, key: str, *, cut_off: bool) -> None:
        known = self._key(key)
        self.counts["paid"] += 1
        if known.paid:
            self.counts["paid_again"] += 1
        # After a cut-off answer asking again is the only way, and no fault of the daemon's.
        known.paid = not cut_off
        self.counts["paid_cut_off"] += cut_off

    # receiver

    def callback_begins(self) -> None:
        self.counts["callbacks"] += 1
        self._callbacks_open += 1
        self._peak("callbacks_in_flight", self._callbacks_open)

    def callback_ends(self) -> None:
        self._callbacks_open -= 1

    def find(self, token: str) -> TraceTruth | None:
        return self._traces.get(token.removeprefix(TOKEN)) if token.startswith(TOKEN) else None

    def delivered(self, trace: TraceTruth, *, cut_off: bool) -> None:
        if trace.delivered is not None:
            self.counts["again_after_cut" if trace.cut_off else "twice"] += 1
            trace.cut_off = cut_off
            return
        trace.delivered = self._clock.now()
        trace.cut_off = cut_off
        age = trace.delivered - trace.created
        self._age_sum += age
        self._peak("delivered_age", age)
        self.counts["delivered"] += 1
        self.counts["on_time" if age <= DEADLINE else "late"] += 1
        known = self._key(trace.key)
        self.counts["keys_delivered"] += not known.delivered
        known.delivered = True

    def check_result(self, trace: TraceTruth, result: bytes, escaped: bool = False) -> None:
        """Cheap for all, whole for a sample: at 60 MB/s parsing everything would be the test's main work."""
        sampled = self.counts["delivered"] % CHECK_EVERY == 0
        first, last = (b'"{', b'}"') if escaped else (b"{", b"}")
        good = result.startswith(first) and result.endswith(last)
        if good and sampled:
            self.counts["results_checked"] += 1
            good = _is_page_of(result, escaped, trace.page[1])
        if not good:
            self.counts["bad_results"] += 1
            self.note(f"result of {trace.key} is not its page")

    def protocol_error(self, message: str) -> None:
        self.counts["protocol_errors"] += 1
        self.note(message)

    def note(self, message: str) -> None:
        self.messages.append(message[:300])

    def summary(self) -> dict[str, Any]:
        counts = {name: self.counts[name] for name in COUNTS}
        delivered = counts["delivered"]
        now = self._clock.now()
        waiting = sum(1 for t in self._traces.values() if t.delivered is None and now - t.created <= DEADLINE)
        return {
            **counts,
            "undelivered": counts["handed_out"] - delivered,
            "still_possible": waiting,
            "delivered_age_mean": round(self._age_sum / delivered, 3) if delivered else 0.0,
            "remembered": len(self._traces) + len(self._keys),
            **{f"{name}_max": round(value, 3) for name, value in self.maxima.items()},
            "messages": list(self.messages),
        }

    def _peak(self, name: str, value: float) -> None:
        if value > self.maxima[name]:
            self.maxima[name] = value

    def _key(self, key: str) -> KeyTruth:
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = KeyTruth(self._clock.now())
            self.counts["unique_keys"] += 1
        else:
            known.seen = self._clock.now()
            self._keys.move_to_end(key)
        return known

    def _forget(self, now: float) -> None:
        """Oldest first; a few each time, so that no call pays for many."""
        for _ in range(4):
            oldest = next(iter(self._traces.values()), None)
            if oldest is not None and now - oldest.handed_out > KEEP:
                self._traces.popitem(last=False)
            stale = next(iter(self._keys.values()), None)
            if stale is not None and now - stale.seen > KEEP and not stale.open:
                self._keys.popitem(last=False)


def _is_page_of(result: bytes, escaped: bool, item_id: str) -> bool:
    """Parses; and if it holds an item, it is the one asked for."""
    try:
        tree = orjson.loads(orjson.loads(result) if escaped else result)
    except orjson.JSONDecodeError:
        return False
    data = tree.get("data")
    item = data.get("item") if isinstance(data, dict) else None
    return not isinstance(item, dict) or str(item.get("itemid")) == item_id
