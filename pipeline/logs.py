"""Logs: for people on a terminal, JSON lines otherwise; ours and the libraries' through one door.

Secrets are removed twice: by name while a line is still a mapping, and by value in the finished line, where
a traceback or a library's message may have carried one in.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast
from urllib.parse import quote

import orjson
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from pipeline.events import Bus, Event, Step

HIDDEN = "***"
#: Shorter "secrets" would blank out ordinary words all over the log.
SECRET_LENGTH_MIN = 4
SECRETS_MAX = 1000
DEPTH_MAX = 6
#: Libraries that say much at our own levels, and the level from which they are heard.
QUIETER = {"aiohttp.access": logging.WARNING, "aiosqlite": logging.INFO, "asyncio": logging.INFO}

_SECRET_NAME = re.compile(r"(?:^|[_\-.])(?:token|key|phone|authorization|secret|password)$", re.IGNORECASE)
_IN_TEXT = re.compile(
    r"((?:\bBearer\s+)|(?:[?&](?:key|phone|token|secret|password|access_token)=))[^\s&\"'<>,)]+",
    re.IGNORECASE,
)
_secrets: dict[str, None] = {}
_pattern: re.Pattern[str] | None = None


def register_secret(value: str) -> None:
    """From now on this value is hidden wherever it would be logged, however it was quoted on the way."""
    global _pattern
    if len(value) < SECRET_LENGTH_MIN or len(_secrets) >= SECRETS_MAX:
        return
    plain, escaped = json.dumps(value, ensure_ascii=False), json.dumps(value)
    for form in (value, quote(value, safe=""), plain[1:-1], escaped[1:-1], repr(value)[1:-1]):
        _secrets[form] = None
    longest_first = sorted(_secrets, key=len, reverse=True)
    _pattern = re.compile("|".join(map(re.escape, longest_first)))


def redact(text: str) -> str:
    if _pattern is not None:
        text = _pattern.sub(HIDDEN, text)
    return _IN_TEXT.sub(rf"\1{HIDDEN}", text)


def _hide_named(_logger: WrappedLogger, _method: str, line: EventDict) -> EventDict:
    return {name: _hidden(name, value, DEPTH_MAX) for name, value in line.items()}


def _hidden(name: object, value: Any, depth: int) -> Any:
    if isinstance(name, str) and value and _SECRET_NAME.search(name):
        return HIDDEN
    if depth and isinstance(value, Mapping):
        return {inner: _hidden(inner, item, depth - 1) for inner, item in value.items()}
    if depth and isinstance(value, list | tuple):
        return [_hidden(None, item, depth - 1) for item in value]
    return value


def _as_json(_logger: WrappedLogger, _method: str, line: MutableMapping[str, Any]) -> str:
    try:
        return orjson.dumps(line, default=repr, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError):  # a huge integer, a lone surrogate: a log line must not fail its caller
        return json.dumps({str(name): repr(value) for name, value in line.items()})


class _Formatter(structlog.stdlib.ProcessorFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def configure(level: str, fmt: str, stream: TextIO | None = None) -> None:
    out = stream if stream is not None else sys.stderr
    console = fmt == "console" or (fmt == "auto" and out.isatty())
    threshold = logging.getLevelNamesMapping()[level.upper()]
    _route_standard_logging(out, console, threshold)
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        # A logger made before this call must obey it too.
        cache_logger_on_first_use=False,
    )


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%f%z", utc=False),
        _hide_named,
    ]


def _route_standard_logging(out: TextIO, console: bool, threshold: int) -> None:
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(out, console))
    root = logging.getLogger()
    for old in [each for each in root.handlers if isinstance(each.formatter, _Formatter)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(threshold)
    # One line per request of our own panel, or several per group of rows, would bury what was asked for.
    for name, least in QUIETER.items():
        logging.getLogger(name).setLevel(max(threshold, least))
    logging.captureWarnings(True)


def _formatter(out: TextIO, console: bool) -> logging.Formatter:
    rendering: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if console:
        rendering.append(_plain_console(out.isatty()))
    else:
        rendering += [structlog.processors.format_exc_info, cast(Processor, _as_json)]
    return _Formatter(processors=rendering, foreign_pre_chain=_shared())


def _plain_console(colors: bool) -> Processor:
    # Richer tracebacks print local variables, and those hold tokens.
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


_RESERVED = frozenset(
    {"event", "lane", "stage", "seq", "level", "logger", "timestamp", "exc_info", "stack_info"}
)


def log_events(bus: Bus) -> None:
    """Each event is one line, at its own level."""
    log = structlog.get_logger("events")

    def write(event: Event) -> None:
        detail = {
            (f"detail_{name}" if name in _RESERVED else name): value for name, value in event.detail.items()
        }
        where = {"lane": event.lane, "stage": event.stage, "seq": event.seq}
        getattr(log, str(event.level))(str(event.kind), **{k: v for k, v in where.items() if v}, **detail)

    bus.subscribe(write)


def log_step(step: Step) -> None:
    """A line for each thing that happens to each ticket: at debug only."""
    told = step.as_dict()
    del told["at"]  # every line has its time
    structlog.get_logger("tickets").debug(told.pop("what"), **told)
