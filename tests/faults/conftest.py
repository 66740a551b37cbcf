from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pipeline.http import HttpClient, Response
from tests.e2e.conftest import logging_as_before
from tests.faults.invariants import secrets_in
from tests.scenarios.stage_play import seed

__all__ = ["logging_as_before"]

#: A ticket's whole life, and a little more: no call has a reason to wait longer.
DEADLINE_MAX = 300.0


@pytest.fixture(autouse=True)
def deadlines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test may end with a call that could have waited for ever (invariant 7)."""
    endless: list[tuple[str, float]] = []
    call = HttpClient.call

    async def watched(client: HttpClient, method: str, url: str, timeout: float, **rest: Any) -> Response:
        if not 0 < timeout <= DEADLINE_MAX:
            endless.append((method, timeout))
        return await call(client, method, url, timeout, **rest)

    monkeypatch.setattr(HttpClient, "call", watched)
    yield
    assert endless == []


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
