"""Named scripts: how the world's behaviour changes over time.

A step says what the world is *from then on*: the behaviour the scenario began with, plus the step's changes.
Steps do not add up, so `{}` is always the way back to normal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.sim.behaviour import Behaviour, changed
from pipeline.sim.world import World

Changes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    at: float
    changes: Changes | Callable[[Behaviour], Changes]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    steps: tuple[Step, ...]
    loop: float = 0.0  # seconds after which it begins again; 0 is never


def _overload(how: str) -> Callable[[Behaviour], Changes]:
    """Five times what the provider can do; one without a limit gets today's rate as its limit."""

    def changes(base: Behaviour) -> Changes:
        capacity = base.capacity or max(1.0, base.rate)
        return {"capacity": capacity, "rate": 5 * capacity, "overload": how}

    return changes


_BROWN: Changes = {"query": {"error": 0.5}}
_BLACK: Changes = {"query": {"reset": 1.0}}
_SLOW: Changes = {"callback": {"latency": 8.0, "sigma": 0.6}}
_BROKE: Changes = {"credits": 0}


def _from_to(name: str, begin: float, end: float, changes: Changes) -> Script:
    return Script(name, (Step(begin, changes, name), Step(end, {}, "calm")))


_TOUR = Script(
    "tour",
    (
        Step(0, {}, "calm"),
        Step(20, {"query": {"error": 0.8}}, "brown-out"),
        Step(50, {}, "calm"),
        Step(65, _BLACK, "black-out"),
        Step(110, {}, "calm"),
        Step(140, _SLOW, "slow callbacks"),
        Step(170, {}, "calm"),
        Step(185, _BROKE, "credit gone"),
        Step(205, {}, "calm"),
    ),
    loop=260,
)

_ALL = (
    Script("calm", (Step(0, {}, "calm"),)),
    _from_to("brown_out", 60, 240, _BROWN),
    _from_to("black_out", 60, 150, _BLACK),
    _from_to("provider_hangs", 60, 150, {"query": {"hang": 1.0}}),
    _from_to("slow_callbacks", 60, 240, _SLOW),
    _from_to("callback_down", 60, 660, {"callback": {"error": 1.0}}),
    _from_to("upstream_down", 60, 180, {"pull": {"error": 1.0}}),
    _from_to("credit_gone", 60, 120, _BROKE),
    _from_to("auth_gone", 60, 120, {"auth_refused": True}),
    Script("duplicates", (Step(0, {"duplicate_share": 0.9}, "duplicates"),)),
    Script("wrong_zone", (Step(0, {"timestamp": "utc_wrong_zone"}, "wrong zone"),)),
    Script("overload", (Step(0, _overload("reject"), "overload"),)),
    Script("overload_queue", (Step(0, _overload("queue"), "overload"),)),
    _TOUR,
)
SCENARIOS: Mapping[str, Script] = {script.name: script for script in _ALL}


def find_script(name: str) -> Script:
    script = SCENARIOS.get(name)
    if script is None:
        raise ConfigError(f"scenario: {name!r} is unknown; known: {', '.join(sorted(SCENARIOS))}")
    return script


async def run_scenario(world: World, clock: Clock, script: Script) -> None:
    """Apply the steps at their times; ends with the last one unless the script loops."""
    base = world.behaviour
    began = clock.monotonic()
    while True:
        for step in script.steps:
            await _until(clock, began + step.at)
            changes = step.changes(base) if callable(step.changes) else step.changes
            world.behave(changed(base, changes))
        if not script.loop:
            return
        began += script.loop
        await _until(clock, began)


async def _until(clock: Clock, moment: float) -> None:
    wait = moment - clock.monotonic()
    if wait > 0:
        await clock.sleep(wait)
