"""The shapes of what the control endpoint says and takes, as JSON Schema."""

from __future__ import annotations

from typing import Any

from pipeline.web.commands import FOR_MAX, REASON_MAX
from pipeline.web.records import STEPS_MAX

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
BOOL: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
#: Not measured yet is null, not nought.
MAYBE: Schema = {"type": ["number", "null"]}

STATES = ["running", "degraded", "paused", "stopped", "hard_stopped", "draining"]
MODES = ["normal", "degraded", "severe", "open", "half_open"]
LEVELS = ["ok", "degrade", "trip", "stop"]
STAGES = ("pull", "query", "callback")
COUNTERS = (
    "pulled",
    "pull_expired",
    "duplicates",
    "joined",
    "queried",
    "answered",
    "offline",
    "processing",
    "delivered",
    "rejected",
    "queue_expired",
    "query_stale",
    "query_expired",
    "callback_expired",
    "retry_expired",
    "retry_exhausted",
)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def record(**fields: Schema) -> Schema:
    """An object that has all of these; more may be added later."""
    return {"type": "object", "required": list(fields), "properties": fields}


def listing(items: Schema, most: int | None = None) -> Schema:
    return {"type": "array", "items": items} | ({} if most is None else {"maxItems": most})


def mapping(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def choice(values: list[str]) -> Schema:
    return {"type": "string", "enum": values}


def _per_stage(schema: Schema) -> Schema:
    return record(**dict.fromkeys(STAGES, schema))


def _or_null(schema: Schema) -> Schema:
    return schema | {"type": [schema["type"], "null"]}


def _options(**fields: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": fields}


_REASON: Schema = {"type": "string", "maxLength": REASON_MAX, "description": "for the log and the panel"}
_FOR: Schema = {
    "type": "number",
    "exclusiveMinimum": 0,
    "maximum": FOR_MAX,
    "description": "seconds after which the pause ends by itself",
}
#: Oldest first; `left_out` says how many older ones did not fit.
_STEPS: Schema = listing(ref("Step"), STEPS_MAX)

SCHEMAS: dict[str, Schema] = {
    "Error": record(error=record(code=TEXT, message=TEXT)),
    "PauseOptions": _options(reason=_REASON, **{"for": _FOR}),
    "CommandOptions": _options(reason=_REASON),
    "Hold": record(reason=TEXT, since=NUMBER, by=TEXT, detail=TEXT, releases=TEXT),
    "Holds": _per_stage(listing(ref("Hold"))),
    "Window": record(total=COUNT, faults=COUNT, fault_rate=NUMBER),
    "Latency": record(p50=MAYBE, p95=MAYBE, p99=MAYBE),
    "Stage": record(
        mode=choice(MODES),
        slots=COUNT,
        busy=COUNT,
        rate_per_min=NUMBER,
        window=ref("Window"),
        consecutive_faults=COUNT,
        last_fault=_or_null(record(why=TEXT, ago=NUMBER)),
        open_for=MAYBE,
        latency=ref("Latency"),
    ),
    "Queue": record(
        pending=COUNT,
        delayed=COUNT,
        in_flight=COUNT,
        keys=COUNT,
        high_water=COUNT,
        low_water=COUNT,
        mark=COUNT,
        processed_keys=COUNT,
        oldest_age=MAYBE,
    ),
    #: `fill` = of what may wait as things are; over 1 it holds the queries.
    "Callbacks": record(pending=COUNT, retrying=COUNT, bytes=COUNT, fill=NUMBER),
    #: What stands though it holds nothing; its kind is that of the event that told of it.
    "Trouble": record(kind=TEXT, stage=TEXT, detail=TEXT),
    "Counters": record(**dict.fromkeys(COUNTERS, COUNT)) | {"additionalProperties": NUMBER},
    "DropRate": record(rate=NUMBER, dropped=COUNT, delivered=COUNT, level=choice(LEVELS)),
    "Conservation": record(pulled=COUNT, accounted=COUNT, balanced=BOOL),
    "Credits": _or_null(record(balance=MAYBE, spent=MAYBE, per_delivery=MAYBE, hours_left=MAYBE)),
    "Upstream": _or_null(record(today=MAYBE, since_start=MAYBE)),
    "Lane": record(
        state=choice(STATES),
        holds=ref("Holds"),
        stages=_per_stage(ref("Stage")),
        troubles=listing(ref("Trouble")),
        queue=ref("Queue"),
        callbacks=ref("Callbacks"),
        counters=ref("Counters"),
        drop_rate=ref("DropRate"),
        conservation=ref("Conservation"),
        credits=ref("Credits"),
        upstream=ref("Upstream"),
        limits=mapping(NUMBER),
    ),
    "Status": record(version=TEXT, uptime=NUMBER, now=NUMBER, lanes=mapping(ref("Lane"))),
    "Event": record(
        seq=COUNT,
        at=NUMBER,
        lane=TEXT,
        kind=TEXT,
        level=choice(["info", "warning", "error"]),
        stage=TEXT,
        detail={"type": "object"},
    ),
    "Events": record(events=listing(ref("Event"))),
    "Step": record(
        at=NUMBER, lane=TEXT, stage=TEXT, trace_id=TEXT, key=TEXT, what=TEXT, age=NUMBER, attempt=COUNT
    ),
    "Trace": record(trace_id=TEXT, steps=_STEPS, left_out=COUNT),
    "Traces": record(shop=TEXT, item=TEXT, steps=_STEPS, left_out=COUNT),
    "Minute": record(at=COUNT) | {"additionalProperties": mapping(NUMBER)},
    "History": record(lane=TEXT, step=COUNT, minutes=listing(ref("Minute"))),
    "Done": record(
        ok={"const": True},
        lanes=mapping(record(state=choice(STATES), holds=ref("Holds"), released=listing(TEXT))),
    ),
    "Alive": record(alive={"const": True}),
    "Ready": record(ready={"const": True}),
    "NotReady": record(ready={"const": False}, reasons=listing(TEXT), error=record(code=TEXT, message=TEXT)),
}
