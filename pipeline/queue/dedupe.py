"""Which keys were done lately: two rolling buckets, eight bytes a slot.

A key is kept as a 64-bit hash in an open-addressed table of unsigned longs. With 400,000 keys the chance
that a new key is taken for an old one is 2e-14. Keys are never removed one by one, only a whole bucket at
a time, so linear probing needs no tombstones. `scripts/bench dedupe` measures it against sets.
"""

from __future__ import annotations

from array import array

_64_BITS = (1 << 64) - 1


def key_hash(key: str) -> int:
    """Python's own, which a string remembers: another one costs 0.6 µs each time. It differs from run to run,
    so nobody can make keys that collide; the journal keeps keys, not hashes. 0 marks an empty slot."""
    return hash(key) & _64_BITS or 1


class _Bucket:
    def __init__(self, keys_max: int) -> None:
        size = 1 << max(4, (keys_max * 2 - 1).bit_length())
        self._slots = array("Q", bytes(8 * size))
        self._mask = size - 1
        self.count = 0

    def __contains__(self, hashed: int) -> bool:
        slots, mask = self._slots, self._mask
        index = hashed & mask
        while found := slots[index]:
            if found == hashed:
                return True
            index = (index + 1) & mask
        return False

    def add(self, hashed: int) -> None:
        slots, mask = self._slots, self._mask
        index = hashed & mask
        while found := slots[index]:
            if found == hashed:
                return
            index = (index + 1) & mask
        slots[index] = hashed
        self.count += 1


class ProcessedKeys:
    """The last `bucket_keys` to `2 × bucket_keys` keys. 0 = remember nothing."""

    def __init__(self, bucket_keys: int) -> None:
        self._bucket_keys = bucket_keys
        self._current = _Bucket(bucket_keys)
        self._previous = _Bucket(0)

    def __len__(self) -> int:
        return self._current.count + self._previous.count

    def __contains__(self, key: str) -> bool:
        hashed = key_hash(key)
        return hashed in self._current or hashed in self._previous

    def add(self, key: str) -> None:
        if not self._bucket_keys:
            return
        if self._current.count >= self._bucket_keys:
            self._previous, self._current = self._current, _Bucket(self._bucket_keys)
        self._current.add(key_hash(key))
