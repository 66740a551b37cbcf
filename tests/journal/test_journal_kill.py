import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from journal_makers import World, recovered

from pipeline.journal.maintenance import check

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def killed_after(path: Path, lines: int) -> list[int]:
    """What the child had flushed, by its own word, when it was killed without warning."""
    command = [sys.executable, str(HERE / "journal_child.py"), str(path)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        seen = [int(child.stdout.readline()) for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
    return seen + [int(line) for line in rest.split("\n")[:-1]]


@pytest.mark.parametrize("lines", [1, 7, 60, 300])
async def test_a_kill_costs_nothing_that_was_flushed(world: World, lines: int):
    flushed = killed_after(world.path, lines)
    assert check(world.path) == []
    async with world.opened() as journal:
        found = await recovered(journal, world)
        assert not found.clean
        answers = {one.ticket.trace_id: one for one in found.undelivered}
        waiting = {one.ticket.trace_id for one in found.unanswered}
        outcomes = dict(world.rows("SELECT trace_id, outcome FROM ticket"))
        for number in flushed:
            assert outcomes[f"done-{number}"] == "delivered"
            assert f"wait-{number}" in waiting
            assert f"kept-{number}" in answers
        newest = answers[f"kept-{flushed[-1]}"]
        assert newest.ticket.token == f"secret-of-kept-{flushed[-1]}"
        answer = await journal.fetch(newest.kept)
        assert answer is not None
        assert answer.body == f"kept-{flushed[-1]}".encode() * 1000
        assert world.bus.recent() == []
