"""Prometheus: read from the lanes' status when asked, so that nothing is counted twice."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from pipeline import __version__
from pipeline.ticket import DROPPED
from pipeline.web.daemon import Daemon

STATES = ("running", "degraded", "paused", "stopped", "hard_stopped", "draining")
MODES = ("normal", "degraded", "severe", "open", "half_open")
#: Which stages a hold can stand on: those series exist, at 0, before the hold first does.
HOLDS: Mapping[str, tuple[str, ...]] = {
    "manual": ("pull",),
    "backpressure": ("pull",),
    "callback_backlog": ("query",),
    "credit": ("pull", "query"),
    "auth": ("pull", "query"),
    "drop_rate": ("pull", "query"),
    "breaker": ("pull", "query", "callback"),
    "success_limit": ("pull",),
    "journal": ("pull",),
    "stopped": ("pull", "query", "callback"),
    "draining": ("pull",),
}
QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}

#: metric, what it says, where in the stage's status it stands
STAGE_GAUGES = (
    ("tidegate_stage_slots", "Calls that may be open at once", ("slots",)),
    ("tidegate_stage_busy", "Calls that are open", ("busy",)),
    ("tidegate_stage_calls_per_minute", "Calls ended in the last minute", ("rate_per_min",)),
    ("tidegate_stage_window_calls", "Samples in the breaker's window", ("window", "total")),
    ("tidegate_stage_window_faults", "Faults in the breaker's window", ("window", "faults")),
    ("tidegate_stage_fault_ratio", "Share of faults in the breaker's window", ("window", "fault_rate")),
    ("tidegate_stage_consecutive_faults", "Faults since the last good call", ("consecutive_faults",)),
    ("tidegate_stage_open_seconds", "Until an open breaker tries again", ("open_for",)),
)
#: metric, what it says, where in the lane's status it stands
LANE_GAUGES = (
    ("tidegate_queue_pending", "Tickets ready to be queried", ("queue", "pending")),
    ("tidegate_queue_delayed", "Tickets waiting for their retry", ("queue", "delayed")),
    ("tidegate_queue_in_flight", "Tickets between pull and their end", ("queue", "in_flight")),
    ("tidegate_queue_keys", "Keys that these tickets are about", ("queue", "keys")),
    ("tidegate_queue_high_water", "Where pulling stops", ("queue", "high_water")),
    ("tidegate_queue_low_water", "Below which pulling starts again", ("queue", "low_water")),
    ("tidegate_queue_processed_keys", "Keys remembered as done", ("queue", "processed_keys")),
    ("tidegate_queue_oldest_age_seconds", "Age of the oldest waiting ticket", ("queue", "oldest_age")),
    ("tidegate_callbacks_pending", "Answers not yet delivered", ("callbacks", "pending")),
    ("tidegate_callbacks_retrying", "Answers waiting for their retry", ("callbacks", "retrying")),
    ("tidegate_callbacks_bytes", "Bytes of answers not yet delivered", ("callbacks", "bytes")),
    ("tidegate_drop_ratio", "Dropped of delivered and dropped", ("drop_rate", "rate")),
    ("tidegate_conservation_balanced", "1 while every ticket is accounted for", ("conservation", "balanced")),
    ("tidegate_credits_balance", "Credits left at the provider", ("credits", "balance")),
    ("tidegate_credits_per_delivery", "Credits spent for one delivery", ("credits", "per_delivery")),
    ("tidegate_credits_hours_left", "Hours until the credits are spent", ("credits", "hours_left")),
    ("tidegate_upstream_today", "Upstream's own count of today's tickets", ("upstream", "today")),
)


class LaneCollector(Collector):
    def __init__(self, daemon: Daemon, client_count: Callable[[], int]) -> None:
        self._daemon = daemon
        self._client_count = client_count

    def describe(self) -> Iterable[Metric]:
        return ()  # else registering would already ask lanes that are not open yet

    def collect(self) -> Iterator[Metric]:
        lanes = {name: control.status() for name, control in self._daemon.lanes.items()}
        yield from self._process()
        states = [((lane,), status["state"]) for lane, status in lanes.items()]
        yield _one_of("tidegate_lane_state", "1 for the state the lane is in", "state", STATES, states)
        yield _holds(lanes)
        yield from _counters(lanes)
        for name, text, path in LANE_GAUGES:
            yield _gauge(name, text, ["lane"], (((lane,), _at(s, path)) for lane, s in lanes.items()))
        yield from _stage_metrics(lanes)

    def _process(self) -> Iterator[Metric]:
        daemon = self._daemon
        build = GaugeMetricFamily("tidegate_build_info", "Always 1", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        uptime = daemon.clock.monotonic() - daemon.started_at
        yield GaugeMetricFamily("tidegate_uptime_seconds", "Since the process began", value=uptime)
        yield GaugeMetricFamily("tidegate_draining", "1 while draining", value=float(daemon.draining))
        yield GaugeMetricFamily("tidegate_web_clients", "Connected panels", value=self._client_count())
        tasks = len(asyncio.all_tasks())
        yield GaugeMetricFamily("tidegate_asyncio_tasks", "Tasks of the event loop", value=tasks)


Lanes = Mapping[str, Mapping[str, Any]]
Series = Iterable[tuple[tuple[str, ...], Any]]


def _gauge(name: str, text: str, labels: list[str], series: Series) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in series:
        if number is not None:  # not known is not nought
            family.add_metric(values, float(number))
    return family


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _one_of(name: str, text: str, label: str, known: tuple[str, ...], now: Series) -> GaugeMetricFamily:
    """A state as Prometheus likes it: one series for each, 1 for the present one."""
    names = ["lane", "stage", label] if label == "mode" else ["lane", label]
    return _gauge(
        name, text, names, (((*where, each), each == current) for where, current in now for each in known)
    )


def _holds(lanes: Lanes) -> GaugeMetricFamily:
    series: dict[tuple[str, ...], int] = {}
    for lane, status in lanes.items():
        series.update({(lane, stage, reason): 0 for reason, stages in HOLDS.items() for stage in stages})
        for stage, holds in status["holds"].items():
            series.update({(lane, stage, str(hold["reason"])): 1 for hold in holds})
    text = "1 while this reason holds the stage"
    return _gauge("tidegate_hold", text, ["lane", "stage", "reason"], series.items())


def _counters(lanes: Lanes) -> Iterator[Metric]:
    dropped = CounterMetricFamily("tidegate_dropped", "Tickets lost, by reason", labels=["lane", "reason"])
    families: dict[str, CounterMetricFamily] = {}
    for lane, status in lanes.items():
        for name, count in status["counters"].items():
            if name in DROPPED:
                dropped.add_metric([lane, name], count)
                continue
            clean = re.sub(r"[^a-z0-9_]", "_", name.lower())
            family = families.setdefault(
                clean, CounterMetricFamily(f"tidegate_{clean}", f"Tickets counted as {name}", labels=["lane"])
            )
            family.add_metric([lane], count)
    yield dropped
    yield from families.values()
    spent = CounterMetricFamily("tidegate_credits_spent", "Credits spent since the start", labels=["lane"])
    for lane, status in lanes.items():
        if (number := _at(status, ("credits", "spent"))) is not None:
            spent.add_metric([lane], number)
    yield spent


def _stage_metrics(lanes: Lanes) -> Iterator[Metric]:
    stages = [
        ((lane, stage), state) for lane, status in lanes.items() for stage, state in status["stages"].items()
    ]
    for name, text, path in STAGE_GAUGES:
        yield _gauge(name, text, ["lane", "stage"], ((where, _at(state, path)) for where, state in stages))
    modes = [(where, state["mode"]) for where, state in stages]
    yield _one_of("tidegate_stage_mode", "1 for the mode the stage is in", "mode", MODES, modes)
    yield _gauge(
        "tidegate_stage_latency_seconds",
        "Recent duration of a call",
        ["lane", "stage", "quantile"],
        (
            ((*where, quantile), _at(state, ("latency", key)))
            for where, state in stages
            for key, quantile in QUANTILES.items()
        ),
    )


class Metrics:
    """GET /metrics, from a registry of its own: two daemons in one test process do not meet."""

    def __init__(self, daemon: Daemon, client_count: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(LaneCollector(daemon, client_count))

    async def handle(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=encode(self._registry), headers={hdrs.CONTENT_TYPE: content_type})
