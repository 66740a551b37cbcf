"""How many pull slots go on asking when upstream has little to give.

1,250 slots asking an empty upstream every two seconds would be 600 calls a second for nothing. A pull that
comes back (nearly) full lets one more slot ask, an empty one takes half a slot away: full ones double the
number with every round, empty ones halve it.
"""

from __future__ import annotations

_FULL = 0.75
#: This share of the slots goes on asking whatever comes back.
_LEAST_SHARE = 50


class Pollers:
    def __init__(self, slots: int) -> None:
        self._most = float(slots)
        self._least = float(min(slots, max(5, slots // _LEAST_SHARE)))
        self._number = self._most

    @property
    def number(self) -> int:
        return int(self._number)

    def learn(self, asked: int, got: int) -> float:
        """How much of a full rest this slot takes: none after a full pull, all after an empty one."""
        if got >= asked * _FULL:
            self._number = min(self._most, self._number + 1)
            return 0.0
        if not got:
            self._number = max(self._least, self._number - 0.5)
        return 1 - got / (asked * _FULL)
