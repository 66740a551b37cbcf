from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.pull.created import read_created

SHANGHAI = ZoneInfo("Asia/Shanghai")
NOON = datetime(2024, 1, 1, 12, 0, tzinfo=SHANGHAI).timestamp()


def read(value: Any) -> float | None:
    return read_created(value, SHANGHAI)


@pytest.mark.parametrize(
    "value",
    [
        "2024-01-01 12:00:00",
        "2024-01-01T12:00:00",
        "2024-01-01 12:00",
        "  2024-01-01 12:00:00\n",
        "2024-01-01T12:00:00+08:00",
        "2024-01-01T04:00:00Z",
        "2024-01-01T04:00:00+00:00",
        "2023-12-31T23:00:00-05:00",
        "20240101T120000",
        NOON,
        int(NOON),
        str(int(NOON)),
        f"{NOON:.3f}",
        int(NOON) * 1000,
        float(NOON * 1000),
        str(int(NOON) * 1000),
    ],
)
def test_every_way_of_writing_noon_is_noon(value: Any) -> None:
    assert read(value) == NOON


def test_a_time_without_a_zone_is_read_in_the_configured_one() -> None:
    text = "2024-01-01 12:00:00"
    assert read_created(text, ZoneInfo("UTC")) == NOON + 8 * 3600
    assert read_created(text, ZoneInfo("America/Sao_Paulo")) == NOON + 11 * 3600


def test_fractions_are_kept() -> None:
    assert read("2024-01-01 12:00:00.250") == NOON + 0.25
    assert read(NOON + 0.5) == NOON + 0.5
    assert read(int(NOON * 1000) + 125) == NOON + 0.125


def test_a_date_alone_is_its_midnight() -> None:
    assert read("2024-01-01") == NOON - 12 * 3600


def test_the_future_is_read_as_it_stands_for_the_pull_to_judge() -> None:
    assert read("2034-01-01 12:00:00") == datetime(2034, 1, 1, 12, tzinfo=SHANGHAI).timestamp()


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        [],
        ["2024-01-01 12:00:00"],
        {},
        {"created_at": 1},
        b"2024-01-01 12:00:00",
        "",
        "   ",
        "yesterday",
        "2024-13-01 12:00:00",
        "2024-01-01 25:00:00",
        "01/02/2024",
        "1" * 65,
        "\ud800",
        "\x00",
    ],
)
def test_what_cannot_be_read_is_nothing(value: Any) -> None:
    assert read(value) is None


@pytest.mark.parametrize(
    "value",
    [
        0,
        -1,
        -NOON,
        -NOON * 1000,
        "-1704081600",
        1,
        946_684_799,
        "0001-01-01 00:00:00",
        "1999-12-31 23:59:59",
        float("nan"),
        float("inf"),
        float("-inf"),
        "nan",
        "inf",
        "1e400",
        10**18,
        -(10**18),
        10**400,
    ],
)
def test_numbers_that_are_no_date_of_a_ticket_are_nothing(value: Any) -> None:
    assert read(value) is None


def test_a_number_too_large_is_nothing_as_text_too() -> None:
    assert read(10**40) is None
    assert read(str(10**40)) is None


def test_the_year_two_thousand_is_the_first_that_is_believed() -> None:
    assert read(946_684_800) == 946_684_800


def test_a_hundred_thousand_million_is_milliseconds_and_less_is_seconds() -> None:
    assert read(99_999_999_999) == 99_999_999_999
    assert read(1_000_000_000_000) == 1_000_000_000


@pytest.mark.parametrize("value", [100_000_000_000, 946_684_799_999, "100000000000"])
def test_milliseconds_of_before_the_year_two_thousand_are_nothing_too(value: Any) -> None:
    assert read(value) is None
    assert read(946_684_800_000) == 946_684_800


@example(100_000_000_000)
@given(st.one_of(st.text(max_size=80), st.integers(), st.floats(), st.none(), st.booleans()))
def test_nothing_upstream_writes_raises(value: Any) -> None:
    found = read(value)
    assert found is None or found >= 946_684_800


@given(st.integers(1_000_000_000, 4_000_000_000))
def test_any_moment_written_in_any_form_comes_back(stamp: int) -> None:
    moment = datetime.fromtimestamp(stamp, UTC)
    for value in (stamp, stamp * 1000, moment.isoformat(), str(stamp)):
        assert read(value) == stamp
