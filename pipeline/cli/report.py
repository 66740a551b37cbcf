"""`tidegate report`: what a day was like, from the journal's file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click

from pipeline.cli.journal_file import existing_journal, reading
from pipeline.cli.options import config_option, json_option
from pipeline.cli.settings import find_config, load_or_exit, texts_for
from pipeline.cli.status import NONE
from pipeline.cli.table import clean, pad, table, width
from pipeline.clock import SystemClock
from pipeline.config import Settings
from pipeline.journal.history import LaneReport, read_report
from pipeline.texts import Texts

YEARS = range(1971, 9999)


@dataclass(frozen=True, slots=True)
class DayOfLane:
    lane: str
    day: date
    zone: ZoneInfo
    report: LaneReport | None  # None if nothing was recorded

    def as_dict(self) -> dict[str, Any]:
        report = self.report
        assert report is not None
        holds = [
            {"reason": hold.reason, "began": hold.began, "seconds": round(hold.seconds, 1)}
            for hold in report.longest_holds
        ]
        return {
            "day": self.day.isoformat(),
            "timezone": self.zone.key,
            "delivered": report.delivered,
            "rejected": report.rejected,
            "dropped": dict(report.dropped),
            "paid": report.paid,
            "spent": report.spent,
            "cost_per_delivery": report.cost_per_delivery,
            "longest_holds": holds,
        }


@click.command()
@config_option
@json_option
@click.option(
    "--day", type=click.DateTime(["%Y-%m-%d"]), metavar="YYYY-MM-DD", help="Where the lane is; else today."
)
def report(config: Path | None, as_json: bool, day: datetime | None) -> None:
    """Show what a day was like: deliveries, drops, money, holds."""
    if day is not None and day.year not in YEARS:
        raise click.UsageError("--day: there is no such day in the journal")
    settings = load_or_exit(find_config(config))
    texts = texts_for(settings)
    days = _read(existing_journal(settings, texts), settings, texts, day.date() if day else None)
    if as_json:
        lanes = {found.lane: found.as_dict() for found in days if found.report is not None}
        click.echo(json.dumps({"lanes": lanes}, ensure_ascii=False))
    else:
        click.echo("\n\n".join(render_day(found, texts) for found in days))


def _read(path: Path, settings: Settings, texts: Texts, day: date | None) -> list[DayOfLane]:
    """Each lane by its own clocks; one that is configured no more by those of the first."""
    zones = {name: ZoneInfo(lane.pull.timezone) for name, lane in settings.lanes.items()}
    first = next(iter(zones.values()))
    now = SystemClock().now()
    found: dict[str, DayOfLane] = {}
    with reading(path, texts) as connection:
        for zone in dict.fromkeys(zones.values()):
            wanted = day or datetime.fromtimestamp(now, zone).date()
            reports = read_report(connection, *_bounds(wanted, zone))
            for name in (*zones, *reports):
                if zones.get(name, first) == zone:
                    found[name] = DayOfLane(name, wanted, zone, reports.get(name))
    return list(found.values())


def _bounds(day: date, zone: ZoneInfo) -> tuple[float, float]:
    began = datetime(day.year, day.month, day.day, tzinfo=zone)
    return began.timestamp(), (began + timedelta(days=1)).timestamp()


def render_day(found: DayOfLane, texts: Texts) -> str:
    title = f"{clean(found.lane)}  {found.day} ({found.zone.key})"
    if found.report is None:
        return f"{title}\n  {texts.say('cli.report.none')}"
    rows = list(_rows(found.report, texts))
    widest = max(width(name) for name, _ in rows)
    lines = [f"  {pad(name, widest)}  {value}" for name, value in rows]
    return "\n".join([title, *lines, *_holds(found, found.report, texts)])


def _rows(report: LaneReport, texts: Texts) -> Iterator[tuple[str, str]]:
    cost = report.cost_per_delivery
    yield texts.say("cli.report.delivered"), str(report.delivered)
    yield texts.say("cli.report.rejected"), str(report.rejected)
    yield texts.say("cli.report.dropped"), str(sum(report.dropped.values()))
    for reason, count in report.dropped.items():
        yield f"  {texts.name('outcome', reason)}", str(count)
    yield texts.say("cli.report.paid"), str(report.paid)
    yield texts.say("cli.report.spent"), _money(report.spent)
    yield texts.say("cli.report.cost"), NONE if cost is None else _money(cost)


def _holds(found: DayOfLane, report: LaneReport, texts: Texts) -> list[str]:
    if not report.longest_holds:
        return []
    rows: list[list[object]] = [[texts.say(f"cli.report.{name}") for name in ("hold", "began", "lasted")]]
    for hold in report.longest_holds:
        began = datetime.fromtimestamp(hold.began, found.zone)
        rows.append([texts.name("reason", hold.reason), f"{began:%H:%M}", texts.duration(hold.seconds)])
    return ["", *table(rows)]


def _money(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")
