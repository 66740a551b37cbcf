from typing import Any

import pytest

from pipeline.config import LaneConfig, Settings
from pipeline.errors import ConfigError
from pipeline.reload import _LIVE_KEYS, is_live, reloaded


def settings(daemon: dict[str, Any] | None = None, **lane: Any) -> Settings:
    ends = {"source": "sim", "provider": "sim", "sink": "sim"}
    return Settings(daemon=daemon or {}, lanes={"shopee": ends | lane})


def test_the_same_file_changes_nothing():
    outcome = reloaded(settings(), settings())
    assert (outcome.changed, outcome.needs_restart) == ([], [])
    assert outcome.settings == settings()


def test_thresholds_change_at_once():
    wanted = settings(queue={"high_water": 900}, breaker={"trip_after": 50}, daemon={"log_level": "debug"})
    outcome = reloaded(settings(), wanted)
    assert outcome.changed == [
        "daemon.log_level",
        "lanes.shopee.breaker.trip_after",
        "lanes.shopee.queue.high_water",
    ]
    assert outcome.needs_restart == []
    assert outcome.settings == wanted


def test_what_is_built_in_is_named_and_stays_as_it_was():
    wanted = settings(pull={"limit": 50, "interval": 3}, query={"token": "new"}, source="http_tasks:Source")
    outcome = reloaded(settings(), wanted)
    assert outcome.changed == ["lanes.shopee.pull.interval"]
    assert outcome.needs_restart == [
        "lanes.shopee.pull.limit",
        "lanes.shopee.query.token",
        "lanes.shopee.source",
    ]
    lane = outcome.settings.lanes["shopee"]
    assert (lane.pull.limit, lane.pull.interval, lane.source) == (200, 3, "sim")
    assert lane.query.token.get_secret_value() == ""


def test_names_are_said_and_values_never():
    outcome = reloaded(settings(query={"token": "canary-1"}), settings(query={"token": "canary-2"}))
    assert "canary" not in str(outcome)


def test_a_lane_more_or_less_needs_a_restart():
    ends = {"source": "sim", "provider": "sim", "sink": "sim"}
    two = Settings(lanes={"shopee": ends, "lazada": ends})
    more, less = reloaded(settings(), two), reloaded(two, settings())
    assert more.needs_restart == less.needs_restart == ["lanes.lazada"]
    assert set(more.settings.lanes) == {"shopee"}
    assert set(less.settings.lanes) == {"shopee", "lazada"}


def test_tables_inside_a_section_are_compared_key_by_key():
    outcome = reloaded(settings(), settings(pull={"fields": {"item_id": "sku"}}, query={"body": {"a": 1}}))
    assert "lanes.shopee.pull.fields.item_id" in outcome.needs_restart
    assert "lanes.shopee.query.body.a" in outcome.needs_restart
    assert outcome.settings == settings()


def test_a_live_change_that_contradicts_what_stays_is_refused_in_one_line():
    running = settings(query={"batch": 10})
    wanted = settings(query={"batch": 20, "degraded_batch": 15})
    with pytest.raises(ConfigError, match=r"not without a restart: .*degraded_batch") as caught:
        reloaded(running, wanted)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("section", sorted(_LIVE_KEYS))
def test_every_live_key_is_a_key(section: str):
    fields = set(type(getattr(LaneConfig(source="sim", provider="sim", sink="sim"), section)).model_fields)
    assert fields >= _LIVE_KEYS[section]


@pytest.mark.parametrize(
    ("key", "live"),
    [
        ("daemon.log_level", True),
        ("daemon.drain_timeout", True),
        ("daemon.lang", False),
        ("web.port", False),
        ("lanes.shopee.queue.low_water", True),
        ("lanes.shopee.queue.order", False),
        ("lanes.shopee.breaker.window", False),
        ("lanes.shopee.nosuch.low_water", False),
        ("lanes.shopee", False),
        ("lanes.shopee.pull.fields.interval", False),
        ("low_water", False),
        ("", False),
    ],
)
def test_which_keys_are_live(key: str, live: bool):
    assert is_live(key) is live
