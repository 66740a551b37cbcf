from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from pipeline import logs


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A daemon configures the whole process's logging; the next test must not inherit it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    secrets, pattern = dict(logs._secrets), logs._pattern
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)
    structlog.reset_defaults()
    logs._secrets.clear()
    logs._secrets.update(secrets)
    logs._pattern = pattern
