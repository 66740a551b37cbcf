"""GET /openapi.json: the tables below, written out as an OpenAPI 3.1 document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from pipeline import __version__
from pipeline.web.control import EVENTS_DEFAULT, EVENTS_MAX
from pipeline.web.records import NAME_MAX, RANGE_DEFAULT, RANGES, TRACE_ID_MAX
from pipeline.web.schemas import SCHEMAS, Schema, choice, ref

JSON = "application/json"

ERRORS = {
    400: "A parameter or the body is wrong; the message names it",
    401: "The token is missing or wrong",
    403: "The request comes from a foreign page",
    404: "There is no such lane, or nothing is kept of what was asked for",
    408: "The body did not arrive in time",
    409: "Not possible in the present state",
    413: "The body is above 64 KB",
    421: "The Host is not ours",
    426: "Only a WebSocket can be opened here",
    500: "A fault of ours; the log says more",
    503: "Too many clients, or the journal cannot be read",
}
EVERYWHERE = (403, 421, 500)
ON_QUERY = (400, 404)
ON_RECORDS = (400, 404, 503)
ON_COMMAND = (400, 404, 408, 409, 413)

LANE: Schema = {
    "name": "lane",
    "in": "query",
    "required": False,
    "description": "one lane; absent for all",
    "schema": {"type": "string", "minLength": 1, "maxLength": 32, "pattern": "^[a-z][a-z0-9_-]*$"},
}
LIMIT: Schema = {
    "name": "limit",
    "in": "query",
    "required": False,
    "schema": {"type": "integer", "minimum": 1, "maximum": EVENTS_MAX, "default": EVENTS_DEFAULT},
}

RANGE: Schema = {
    "name": "range",
    "in": "query",
    "required": False,
    "description": "how far back; a longer one comes in larger steps",
    "schema": choice(list(RANGES)) | {"default": RANGE_DEFAULT},
}


def _name(name: str, place: str = "query", length_max: int = NAME_MAX) -> Schema:
    text = {"type": "string", "minLength": 1, "maxLength": length_max}
    return {"name": name, "in": place, "required": True, "schema": text}


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    name: str
    does: str
    answer: str = ""  # a schema's name, for JSON
    media: str = JSON
    parameters: tuple[Schema, ...] = ()
    body: str = ""
    errors: tuple[int, ...] = ()
    is_open: bool = False  # answers without the token


def _command(verb: str, does: str, body: str = "CommandOptions", per_lane: bool = True) -> Operation:
    parameters = (LANE,) if per_lane else ()
    path = f"/api/{verb}"
    return Operation("post", path, verb, does, "Done", parameters=parameters, body=body, errors=ON_COMMAND)


OPERATIONS = (
    Operation("get", "/api/status", "status", "Everything", "Status", parameters=(LANE,), errors=ON_QUERY),
    Operation(
        "get",
        "/api/events",
        "events",
        "Recent events, newest first",
        "Events",
        parameters=(LIMIT, LANE),
        errors=ON_QUERY,
    ),
    Operation(
        "get",
        "/api/trace/{trace_id}",
        "trace",
        "What became of a ticket: each step, oldest first",
        "Trace",
        parameters=(_name("trace_id", "path", TRACE_ID_MAX),),
        errors=ON_RECORDS,
    ),
    Operation(
        "get",
        "/api/traces",
        "traces",
        "What became of every ticket for an item, oldest first",
        "Traces",
        parameters=(_name("shop"), _name("item")),
        errors=ON_RECORDS,
    ),
    Operation(
        "get",
        "/api/history",
        "history",
        "Minutes of a lane, put together into steps, oldest first",
        "History",
        parameters=(LANE | {"required": True, "description": "one lane"}, RANGE),
        errors=ON_RECORDS,
    ),
    _command("pause", "Pulling off; what has been pulled goes on", "PauseOptions"),
    _command("resume", "Pulling on; releases manual, credit, auth, drop_rate and success_limit"),
    _command("start", "The lane's workers on"),
    _command("stop", "The lane's workers off"),
    _command("shutdown", "Stop, drain, exit 0", per_lane=False),
    Operation("get", "/livez", "livez", "Is the process alive?", "Alive", is_open=True),
    Operation("get", "/readyz", "readyz", "Is it at work? A manual pause stays ready", "Ready", is_open=True),
    Operation("get", "/metrics", "metrics", "Prometheus", media="text/plain"),
    Operation("get", "/openapi.json", "openapi", "This document", media=JSON),
    Operation("get", "/ws", "feed", "WebSocket: hello, stats, event, ticket, ack", errors=(426, 503)),
    Operation("get", "/", "panel", "The panel", media="text/html", is_open=True),
)


@cache
def describe() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": __version__,
            "description": "Control endpoint. Where no token is configured, none is asked for.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.does,
        "responses": _responses(operation),
        "security": [] if operation.is_open else [{}, {"bearer": []}],
    }
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body:
        described["requestBody"] = {"required": False, "content": {JSON: {"schema": ref(operation.body)}}}
    return described


def _responses(operation: Operation) -> dict[str, Any]:
    codes = {*EVERYWHERE, *operation.errors} | (set() if operation.is_open else {401})
    responses = {str(code): _answer(ERRORS[code], "Error") for code in sorted(codes)}
    if operation.path == "/ws":
        responses["101"] = {"description": "The connection is a WebSocket now"}
    else:
        responses["200"] = _answer("Done", operation.answer, operation.media)
    if operation.path == "/readyz":
        responses["503"] = _answer("Not ready, and why", "NotReady")
    return responses


def _answer(description: str, schema: str, media: str = JSON) -> dict[str, Any]:
    plain: Schema = {"type": "object"} if media == JSON else {"type": "string"}
    return {"description": description, "content": {media: {"schema": ref(schema) if schema else plain}}}
