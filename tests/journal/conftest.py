from pathlib import Path

import pytest
from journal_makers import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "live" / "journal.db")
