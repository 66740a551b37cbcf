"""/openapi.json describes the daemon that really runs."""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from tests.e2e.harness import (
    LANE,
    assert_all_delivered_once,
    eventually,
    lane_tree,
    running,
    settings_tree,
    upstream_runs_dry,
    world,
)
from tests.e2e.processes import clean_environment

FUZZ_TIMEOUT = 90.0


async def test_schemathesis_finds_no_difference_and_the_lane_survives_being_fuzzed(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"schemathesis seed {seed}")
    async with world(rate=50) as server:
        async with running(settings_tree({LANE: lane_tree(server.url)})) as live:
            fuzzer = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{live.http._base_url}/openapi.json"),
                *("--exclude-path", "/api/shutdown", "--exclude-path", "/ws"),
                *("--phases", "examples,coverage,fuzzing"),
                *("--checks", "all", "--max-examples", "8", "--seed", str(seed), "--no-color"),
                cwd=tmp_path,
                env=clean_environment(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                async with asyncio.timeout(FUZZ_TIMEOUT):
                    output, _ = await fuzzer.communicate()
            except TimeoutError:
                fuzzer.kill()
                await fuzzer.wait()
                raise
            assert fuzzer.returncode == 0, output.decode()
            # The fuzzer paused and stopped the lane many times over; one start and one resume undo it all.
            await live.post("/api/start")
            await live.post("/api/resume")
            before = live.counter("delivered")
            await eventually(lambda: live.counter("delivered") > before + 20)
            await upstream_runs_dry(server)
            await live.all_ended(server)
            assert live.counter("worker_crashes") == 0
        assert_all_delivered_once(server.world.truth())
