import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from queue_makers import PROPERTY

from pipeline.queue.dedupe import ProcessedKeys, key_hash


def test_a_key_is_known_once_it_was_added_and_not_before():
    keys = ProcessedKeys(10)
    assert "1:2:sg" not in keys
    keys.add("1:2:sg")
    assert "1:2:sg" in keys
    assert "1:2:my" not in keys


def test_the_last_bucket_full_is_always_remembered_and_at_most_two():
    keys = ProcessedKeys(100)
    for number in range(1000):
        keys.add(str(number))
        for back in range(min(number + 1, 100)):
            assert str(number - back) in keys
        assert len(keys) <= 200
    assert "799" not in keys


def test_a_repeat_takes_no_second_place():
    keys = ProcessedKeys(10)
    for _ in range(50):
        keys.add("same")
    assert len(keys) == 1


def test_zero_remembers_nothing():
    keys = ProcessedKeys(0)
    keys.add("a")
    assert "a" not in keys
    assert len(keys) == 0


def test_twenty_thousand_strangers_are_all_strangers():
    keys = ProcessedKeys(10_000)
    for number in range(20_000):
        keys.add(f"{number}:in:sg")
    assert len(keys) == 20_000
    assert all(f"{number}:in:sg" in keys for number in range(20_000))
    assert not any(f"{number}:out:sg" in keys for number in range(20_000))


@given(st.text())
def test_any_text_has_a_hash_of_eight_bytes_that_is_not_nought(text: str):
    assert 0 < key_hash(text) < 1 << 64
    assert key_hash(text) == key_hash(text)


def test_half_a_character_is_a_key_like_any_other():
    keys = ProcessedKeys(4)
    keys.add("\ud800")
    assert "\ud800" in keys


@pytest.mark.parametrize("size", [1, 2, 8, 9])
def test_keys_that_fall_on_the_same_place_do_not_hide_each_other(size: int, monkeypatch: pytest.MonkeyPatch):
    hashes = {str(n): (n << 40) | 15 for n in range(1, 40)}
    monkeypatch.setattr("pipeline.queue.dedupe.key_hash", hashes.__getitem__)
    keys = ProcessedKeys(size)
    for n in range(1, size + 1):
        keys.add(str(n))
    assert [str(n) in keys for n in range(1, 40)] == [n <= size for n in range(1, 40)]


class KeysAgainstTwoSets(RuleBasedStateMachine):
    """No key is forgotten that two sets would know, and none is known that they would not."""

    @initialize(size=st.integers(0, 6))
    def begin(self, size: int) -> None:
        self.size = size
        self.keys = ProcessedKeys(size)
        self.current: set[str] = set()
        self.previous: set[str] = set()

    @rule(key=st.integers(0, 25).map(str))
    def add(self, key: str) -> None:
        self.keys.add(key)
        if not self.size:
            return
        if len(self.current) >= self.size:
            self.previous, self.current = self.current, set()
        self.current.add(key)

    @invariant()
    def knows_what_the_sets_know(self) -> None:
        if hasattr(self, "current"):
            known = {str(number) for number in range(30) if str(number) in self.keys}
            assert known == self.current | self.previous
            assert len(self.keys) == len(self.current) + len(self.previous)


KeysAgainstTwoSets.TestCase.settings = PROPERTY
TestKeysAgainstTwoSets = KeysAgainstTwoSets.TestCase
