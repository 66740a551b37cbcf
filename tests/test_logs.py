"""Logs: both formats, the libraries' lines too, and no secret in any of them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import structlog

from pipeline import logs
from pipeline.events import Bus, Event, Kind, Level

CANARY = 'canary "quoted"/密钥+1'


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def _lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_off_a_terminal_each_line_is_json_with_a_zoned_timestamp() -> None:
    stream = io.StringIO()
    logs.configure("info", "auto", stream)
    structlog.get_logger("here").info("hello", number=1)
    [line] = _lines(stream)
    assert (line["event"], line["number"], line["level"], line["logger"]) == ("hello", 1, "info", "here")
    assert datetime.fromisoformat(line["timestamp"]).tzinfo is not None


def test_on_a_terminal_a_line_is_for_people() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    logs.configure("info", "auto", stream)
    structlog.get_logger().warning("hello", number=1)
    assert "hello" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    logs.configure("warning", "json", stream)
    structlog.get_logger().info("quiet")
    logging.getLogger("aiohttp.client").info("quiet")
    assert stream.getvalue() == ""


def test_libraries_log_through_the_same_door() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    logging.getLogger("aiohttp.server").error("bad request from %s", "somewhere")
    [line] = _lines(stream)
    assert line["event"] == "bad request from somewhere"
    assert line["logger"] == "aiohttp.server"


def test_configuring_twice_writes_each_line_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure("info", "json", first)
    logs.configure("info", "json", second)
    structlog.get_logger().info("once")
    assert first.getvalue() == ""
    assert len(_lines(second)) == 1


def test_values_of_secret_names_are_hidden_at_any_depth() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    structlog.get_logger().info(
        "sent", token="t-1", Authorization="Bearer t-2", nested={"query": [{"api_key": "t-3"}]}, phone="138"
    )
    [line] = _lines(stream)
    assert line["token"] == line["Authorization"] == line["phone"] == logs.HIDDEN
    assert line["nested"] == {"query": [{"api_key": logs.HIDDEN}]}


@pytest.mark.parametrize("fmt", ["json", "console"])
def test_a_registered_secret_is_hidden_wherever_it_turns_up(fmt: str) -> None:
    stream = io.StringIO()
    logs.configure("info", fmt, stream)
    logs.register_secret(CANARY)
    try:
        raise RuntimeError(f"cannot reach https://host/?x={CANARY}")
    except RuntimeError:
        structlog.get_logger().exception(f"call failed: {CANARY}", detail={"a": [CANARY]})
        logging.getLogger("asyncio").exception("task died: %s", CANARY)
    written = stream.getvalue()
    assert "canary" not in written
    assert "RuntimeError" in written


def test_bearer_tokens_and_query_strings_are_hidden_even_if_nobody_registered_them() -> None:
    hidden = logs.redact(
        "GET http://up/api/get/tasks?phone=13800000000&limit=5 Authorization: Bearer abc.def"
    )
    assert hidden == "GET http://up/api/get/tasks?phone=***&limit=5 Authorization: Bearer ***"


def test_a_secret_too_short_to_be_one_does_not_blank_the_log() -> None:
    logs.register_secret("")
    logs.register_secret("a")
    assert logs.redact("a banana") == "a banana"


def test_a_line_that_json_cannot_hold_is_still_written() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    structlog.get_logger().info("odd", huge=1 << 80, lone="\ud800")
    assert len(stream.getvalue().splitlines()) == 1


def test_each_event_is_logged_once_at_its_level() -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    bus = Bus()
    logs.log_events(bus)
    detail = {"reason": "credit", "event": "clash", "level": "clash"}
    bus.publish(Event(1.0, "shopee", Kind.HOLD, Level.WARNING, "pull", detail))
    [line] = _lines(stream)
    assert (line["event"], line["level"], line["lane"], line["reason"]) == (
        "hold",
        "warning",
        "shopee",
        "credit",
    )
    assert line["detail_event"] == "clash"
