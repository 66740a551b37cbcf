"""What an operator can order, the same for REST and WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog

from pipeline.errors import BadRequest
from pipeline.logs import redact
from pipeline.web.daemon import ECHO_MAX, Daemon, LaneControl, lanes_named

REASON_MAX = 200
FOR_MAX = 86_400

log = structlog.get_logger()


class Verb(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    START = "start"
    STOP = "stop"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True, slots=True)
class Command:
    verb: Verb
    by: str
    lane: str | None = None
    reason: str = ""
    for_seconds: float | None = None


def read_command(verb: Verb, by: str, lane: str | None, fields: Mapping[str, Any]) -> Command:
    """Checks every field by name. Raises BadRequest."""
    # A `for` that only pausing obeys must not be swallowed by a stop: the lane would never start again.
    allowed = ("reason", "for") if verb is Verb.PAUSE else ("reason",)
    for name in fields:
        if name not in allowed:
            raise BadRequest(f"{verb} takes no field {name[:ECHO_MAX]!r}; known: {', '.join(allowed)}")
    return Command(verb, by, lane, _reason(fields.get("reason", "")), _seconds(fields))


def _reason(value: Any) -> str:
    if not isinstance(value, str) or len(value) > REASON_MAX:
        raise BadRequest(f"reason must be text of at most {REASON_MAX} characters")
    return redact(value)  # it is told in events and the status, where no secret may stand, nor a pasted one


def _seconds(fields: Mapping[str, Any]) -> float | None:
    if "for" not in fields:
        return None
    value = fields["for"]
    # bool is an int to Python, not to an operator
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= FOR_MAX:
        raise BadRequest(f"for must be a number of seconds above 0 and at most {FOR_MAX}")
    return float(value)


async def execute(daemon: Daemon, command: Command) -> dict[str, Any]:
    """Carry out, then say where every lane concerned stands now."""
    chosen = lanes_named(daemon, command.lane)
    if command.verb is Verb.SHUTDOWN and len(chosen) < len(daemon.lanes):
        raise BadRequest("shutdown ends the whole process, not one lane of several")
    log.info(
        "operator command",
        command=str(command.verb),
        lane=command.lane or "*",
        by=command.by,
        reason=command.reason,
    )
    if command.verb is Verb.SHUTDOWN:
        daemon.shutdown(command.by)
        released: list[list[str]] = [[] for _ in chosen]
    else:
        released = await _each(chosen, command)
    return {
        "ok": True,
        "lanes": {
            name: _standing(control, names)
            for (name, control), names in zip(chosen.items(), released, strict=True)
        },
    }


async def _each(chosen: Mapping[str, LaneControl], command: Command) -> list[list[str]]:
    """Every lane gets the command, also when another refuses it; then the first refusal is raised."""
    everyone = asyncio.gather(
        *(_apply(control, command) for control in chosen.values()), return_exceptions=True
    )
    # Who gave the order may hang up: a lane half stopped would be nobody's wish.
    results = await asyncio.shield(everyone)
    released: list[list[str]] = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        released.append(result)
    return released


async def _apply(control: LaneControl, command: Command) -> list[str]:
    match command.verb:
        case Verb.PAUSE:
            control.pause(command.by, command.reason, command.for_seconds)
        case Verb.RESUME:
            return control.resume(command.by, command.reason)
        case Verb.START:
            await control.start(command.by)
        case Verb.STOP:
            await control.stop(command.by)
    return []


def _standing(control: LaneControl, released: list[str]) -> dict[str, Any]:
    status = control.status()
    return {"state": status["state"], "holds": status["holds"], "released": released}
