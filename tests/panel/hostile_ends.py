"""A source whose every word is an attack on whoever shows it, and a sink that wants nothing."""

from __future__ import annotations

from itertools import count

from pipeline.clock import Clock
from pipeline.config import CallbackConfig, PullConfig
from pipeline.ports import Pulled
from pipeline.ticket import Answer, Receipt, Ticket, Verdict

PAYLOADS = (
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 1'>",
    '"><svg onload="window.hit = 1">',
    "javascript:window.hit=1",
    "{{constructor.constructor('window.hit = 1')()}}",
)
#: Marks that turn the words around them, and how they are shown.
TURNED = "shop \u202emoc.live\u2066"
TURNED_SHOWN = r"shop \u202emoc.live\u2066"
#: Enough to be seen, few enough to be done with when the test ends.
PULLS = 3


class HostileSource:
    def __init__(self, section: PullConfig, clock: Clock) -> None:
        self._numbers = count()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def pull(self, limit: int, timeout: float) -> Pulled:
        number = next(self._numbers)
        if number >= PULLS:
            return Pulled()
        return Pulled(
            tickets=[
                Ticket(key=f"{payload}:{number}:sg", trace_id=f"{payload} {number}", stamp=None)
                for payload in (*PAYLOADS, TURNED)
            ]
        )

    async def volume(self) -> int | None:
        return None


class RefusingSink:
    def __init__(self, section: CallbackConfig, clock: Clock) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def deliver(self, ticket: Ticket, answer: Answer, timeout: float) -> Receipt:
        return Receipt(Verdict.REJECTED, "HTTP 410")
