from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import logging_as_before
from tests.faults.invariants import secrets_in
from tests.scenarios.stage_play import seed

__all__ = ["logging_as_before"]


@pytest.fixture(autouse=True)
def logged(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """All that the process has said so far. No test may end with a secret in it (invariant 12)."""
    random.seed(seed())
    said: list[str] = []

    def so_far() -> str:
        said.extend(capfd.readouterr())
        return "".join(said)

    yield so_far
    everything = so_far()
    print(everything[-20_000:])  # for the report of a test that failed
    assert secrets_in({"logs": everything}) == []
