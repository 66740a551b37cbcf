"""GET /openapi.json describes the API that runs."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
from fake_daemon import FakeDaemon

from pipeline.config import WebConfig
from pipeline.web.app import build_app
from pipeline.web.metrics import MODES, STATES
from pipeline.web.openapi import OPERATIONS, describe
from pipeline.web.schemas import MODES as SCHEMA_MODES
from pipeline.web.schemas import SCHEMAS
from pipeline.web.schemas import STATES as SCHEMA_STATES

#: The fuzzer gets so long; more than enough for these few examples.
FUZZ_TIMEOUT = 60.0


def matches(name: str, body: Any) -> None:
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    jsonschema_rs.validator_for(schema).validate(body)


def references(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[1]
            yield from references(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from references(value)


async def test_the_document_is_served_as_it_is_described(http):
    async with http.get("/openapi.json") as response:
        document = await response.json()
    assert document["openapi"].startswith("3.1")
    assert document == describe()


def test_every_reference_leads_somewhere_and_every_schema_is_used():
    assert set(references(describe())) == set(SCHEMAS)


def test_every_route_is_described_and_nothing_else():
    app = build_app(FakeDaemon(), WebConfig())
    served = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD" and not route.resource.canonical.startswith("/static")
    }
    assert served == {(operation.method, operation.path) for operation in OPERATIONS}


def test_metrics_and_schemas_know_the_same_states():
    assert (list(STATES), list(MODES)) == (SCHEMA_STATES, SCHEMA_MODES)


async def test_answers_match_their_schemas(http, daemon):
    daemon.publish(reason="x")
    for method, path, name in (
        ("GET", "/api/status", "Status"),
        ("GET", "/api/events", "Events"),
        ("POST", "/api/stop", "Done"),
        ("GET", "/livez", "Alive"),
        ("GET", "/readyz", "Ready"),
        ("GET", "/api/nothing", "Error"),
    ):
        async with http.request(method, path) as response:
            matches(name, await response.json())
    daemon.draining = True
    async with http.get("/readyz") as response:
        matches("NotReady", await response.json())


async def test_schemathesis_finds_no_difference_between_document_and_api(http, tmp_path):
    seed = random.randrange(1 << 32)
    print(f"schemathesis seed {seed}")
    fuzzer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{http._base_url}/openapi.json"),
        # a plain GET of the WebSocket is rightly refused, which the fuzzer cannot know
        *("--exclude-path", "/api/shutdown", "--exclude-path", "/ws"),
        *("--phases", "examples,coverage,fuzzing"),
        *("--checks", "all", "--max-examples", "8", "--seed", str(seed), "--no-color"),
        cwd=tmp_path,
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
