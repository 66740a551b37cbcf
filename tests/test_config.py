"""Configuration: the shipped file says all there is, and whatever is wrong is one line that names its key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from pipeline.config import LaneConfig, Settings
from pipeline.errors import ConfigError
from pipeline.loading import load

SHIPPED = Path(__file__).parent.parent / "config.toml"
CANARY = "canary-8f2c"
ENDS = {"source": "sim", "provider": "sim", "sink": "sim"}


def _write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


SIM_LANE = '[lanes.shopee]\nsource = "sim"\nprovider = "sim"\nsink = "sim"\n'


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Every key of a model or a table by its full name."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if not isinstance(value, dict) or path.endswith(".body"):
        return {path: value}
    found: dict[str, Any] = {}
    for name, item in value.items():
        found |= _flat(item, f"{path}.{name}" if path else name)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return list(value) if isinstance(value, tuple) else value


def test_the_shipped_file_names_every_key_with_its_default() -> None:
    model = Settings(lanes={"shopee": LaneConfig(**ENDS)})
    defaults = {name: _plain(value) for name, value in _flat(model).items()}
    assert _flat(tomllib.loads(SHIPPED.read_text(encoding="utf-8"))) == defaults


def test_the_shipped_file_loads_as_it_stands() -> None:
    assert load(SHIPPED, {}).lanes["shopee"].source == "sim"


def test_every_key_of_the_shipped_file_is_explained_beside_it() -> None:
    keys = [line for line in SHIPPED.read_text(encoding="utf-8").splitlines() if line[:1].isalpha()]
    assert [line for line in keys if "#" not in line] == []


def test_the_shipped_file_keeps_the_order_of_the_flow() -> None:
    lane = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))["lanes"]["shopee"]
    assert list(lane) == list(LaneConfig.model_fields)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    file = _write(tmp_path, SIM_LANE + '[lanes.shopee.query]\ntoken = "from-file"\nworkers = 3\n')
    environ = {"TIDEGATE_LANES__SHOPEE__QUERY__TOKEN": "12e4", "TIDEGATE_WEB__PORT": "9000"}
    settings = load(file, environ)
    assert settings.lanes["shopee"].query.token.get_secret_value() == "12e4", "text stays text"
    assert settings.lanes["shopee"].query.workers == 3
    assert settings.web.port == 9000


def test_lists_in_the_environment_are_written_as_in_the_file(tmp_path: Path) -> None:
    environ = {"TIDEGATE_ALERTS__WECOM__MENTION": '["@all"]'}
    assert load(_write(tmp_path, SIM_LANE), environ).alerts.wecom.mention == ("@all",)


def test_credentials_win_over_the_file_and_the_environment_over_both(tmp_path: Path) -> None:
    file = _write(tmp_path, SIM_LANE + '[lanes.shopee.query]\ntoken = "from-file"\n')
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "lanes.shopee.query.token").write_text("from-credential\n", encoding="utf-8")
    environ = {"CREDENTIALS_DIRECTORY": str(folder)}
    assert load(file, environ).lanes["shopee"].query.token.get_secret_value() == "from-credential"
    environ["TIDEGATE_LANES__SHOPEE__QUERY__TOKEN"] = "from-environment"
    assert load(file, environ).lanes["shopee"].query.token.get_secret_value() == "from-environment"


def test_a_credential_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "web.token").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"web\.token: the credential is not UTF-8"):
        load(None, {"CREDENTIALS_DIRECTORY": str(tmp_path)})


def test_our_own_variables_are_not_configuration_keys(tmp_path: Path) -> None:
    environ = {"TIDEGATE_URL": "http://x", "TIDEGATE_TOKEN": "x", "TIDEGATE_CONFIG": "x"}
    load(_write(tmp_path, SIM_LANE), environ)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[daemon]\nlagn = 'zh'\n" + SIM_LANE, "daemon.lagn: unknown key"),
        ("[web]\nport = 'many'\n" + SIM_LANE, "web.port:"),
        ("[web]\nport = 70000\n" + SIM_LANE, "web.port:"),
        ("[daemon]\nlang = 'fr'\n" + SIM_LANE, "daemon.lang:"),
        ("[daemon]\nhttp_client = 'curl'\n" + SIM_LANE, "daemon.http_client:"),
        (SIM_LANE + "[lanes.shopee.pull]\ntimezone = 'Mars/Base'\n", "lanes.shopee.pull.timezone:"),
        (SIM_LANE + "[lanes.shopee.pull]\nurl = 'ftp://x'\n", "lanes.shopee.pull.url:"),
        (
            SIM_LANE + "[lanes.shopee.queue]\nlow_water = 900\n",
            "lanes.shopee.queue.low_water: 900 is above high_water (800)",
        ),
        (SIM_LANE + "[lanes.shopee.drop_rate]\nstop = 0.1\n", "lanes.shopee.drop_rate: must be in order"),
        (
            SIM_LANE + "[lanes.shopee.breaker]\npause = 90\n",
            "lanes.shopee.breaker.pause: 90 is above pause_max (60)",
        ),
        (SIM_LANE + "[lanes.shopee.callback]\nbody = {}\n", "lanes.shopee.callback.body:"),
        (SIM_LANE + "[lanes.shopee.query]\nbatch = 0\n", "lanes.shopee.query.batch: "),
        (
            SIM_LANE + "[lanes.shopee.query]\nbatch = 2\ndegraded_batch = 3\n",
            "lanes.shopee.query: severe_batch",
        ),
        ("[lanes.shopee]\n", "lanes.shopee.pull.url: must be set"),
        (SIM_LANE.replace("shopee", "Shopee"), "lanes: 'Shopee'"),
        ("[daemon]\n", "lanes: at least one lane"),
        ("[web]\nport = true\n" + SIM_LANE, "web.port: must not be true or false"),
        ("web = 3\n" + SIM_LANE, "web: must be a section"),
        ("lanes = 3\n", "lanes: must be a table"),
        (SIM_LANE + "[lanes.shopee.query]\nfault_codes = 7\n", "lanes.shopee.query.fault_codes: must"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_its_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(_write(tmp_path, text), {})
    assert str(caught.value).startswith(key)
    assert "\n" not in str(caught.value)


def test_a_default_that_depends_on_a_bad_value_is_no_second_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(_write(tmp_path, SIM_LANE + "[lanes.shopee.query]\nbatch = 0\n"), {})
    assert "more" not in str(caught.value)


def _lane(folder: Path, text: str, environ: dict[str, str] | None = None) -> LaneConfig:
    return load(_write(folder, SIM_LANE + text), environ or {}).lanes["shopee"]


@pytest.mark.parametrize("stage", ["pull", "query", "callback"])
def test_a_small_batch_alone_is_no_contradiction(tmp_path: Path, stage: str) -> None:
    section = getattr(_lane(tmp_path, f"[lanes.shopee.{stage}]\nbatch = 1\n"), stage)
    assert (section.degraded_batch, section.severe_batch) == (1, 1)


@pytest.mark.parametrize(("high", "low"), [("10", 1), ("100", 12), ("1", 1), ("101", 100)])
def test_the_low_mark_gives_way_to_a_high_mark_below_it(tmp_path: Path, high: str, low: int) -> None:
    environ = {"TIDEGATE_LANES__SHOPEE__QUEUE__HIGH_WATER": high}
    assert _lane(tmp_path, "", environ).queue.low_water == low


def test_recovery_gives_way_to_a_degrading_below_it(tmp_path: Path) -> None:
    for degrade_at, recover_below in ((0.3, 0.15), (0.35, 0.175), (0.5, 0.35)):
        breaker = _lane(tmp_path, f"[lanes.shopee.breaker]\ndegrade_at = {degrade_at}\n").breaker
        assert breaker.recover_below == recover_below


@pytest.mark.parametrize(
    "text",
    [
        "[lanes.shopee.query]\nstale_age = 3\n",
        "[lanes.shopee.query]\nmax_age = 3\n",
        "[lanes.shopee.callback]\nmax_age = 3\n",
        "[lanes.shopee.queue]\nmax_age = 3\n",
        "[lanes.shopee.pull]\nmax_age = 600\n",
    ],
)
def test_every_age_can_be_set_alone(tmp_path: Path, text: str) -> None:
    _lane(tmp_path, text)


def test_two_levels_of_the_drop_rate_may_be_one(tmp_path: Path) -> None:
    text = "[lanes.shopee.drop_rate]\ndegrade = 1\ntrip = 1\nstop = 1\n"
    assert _lane(tmp_path, text).drop_rate.stop == 1


@pytest.mark.parametrize("text", ["[daemon", "a = 1\na = 2\n", "[daemon]\nlang = zh\n"])
def test_a_file_that_is_not_toml_is_one_line_that_names_the_file(tmp_path: Path, text: str) -> None:
    file = _write(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load(tmp_path / "nowhere.toml", {})


def test_without_any_file_it_is_said_where_one_was_looked_for() -> None:
    with pytest.raises(ConfigError, match=r"here or in /etc/tidegate: name one with --config"):
        load(None, {})


def test_a_lane_that_only_a_variable_names_is_said_to_be_none_of_the_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file has no lane shope: a variable or a credential names it"):
        load(_write(tmp_path, SIM_LANE), {"TIDEGATE_LANES__SHOPE__QUERY__TOKEN": "any"})


def test_an_unknown_variable_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"web\.prot: unknown key"):
        load(_write(tmp_path, SIM_LANE), {"TIDEGATE_WEB__PROT": "1"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "tidegate.example"])
def test_an_address_others_can_reach_is_refused_without_a_token(tmp_path: Path, host: str) -> None:
    file = _write(tmp_path, f'[web]\nhost = "{host}"\n' + SIM_LANE)
    with pytest.raises(ConfigError, match=r"^web\.token: must be set"):
        load(file, {})
    assert load(file, {"TIDEGATE_WEB__TOKEN": "t0ken"}).web.host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_loopback_needs_no_token(tmp_path: Path, host: str) -> None:
    assert load(_write(tmp_path, f'[web]\nhost = "{host}"\n' + SIM_LANE), {}).web.is_loopback


def _with_secrets(tmp_path: Path, extra: dict[str, str]) -> dict[str, str]:
    return {
        "TIDEGATE_WEB__TOKEN": CANARY,
        "TIDEGATE_ALERTS__WECOM__KEY": CANARY,
        "TIDEGATE_LANES__SHOPEE__PULL__PHONE": CANARY,
        "TIDEGATE_LANES__SHOPEE__QUERY__TOKEN": CANARY,
        **extra,
    }


def test_secrets_are_not_in_what_settings_say_of_themselves(tmp_path: Path) -> None:
    settings = load(_write(tmp_path, SIM_LANE), _with_secrets(tmp_path, {}))
    assert CANARY not in repr(settings) + str(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    "extra",
    [
        {"TIDEGATE_WEB__PORT": CANARY},
        {"TIDEGATE_WEB": CANARY},
        {"TIDEGATE_LANES__SHOPEE__QUERY__TOKEN": f'["{CANARY}"]'},
        {"TIDEGATE_LANES__SHOPEE__QUERY__TOKEN__X": CANARY},
        {"TIDEGATE_LANES__SHOPEE__PULL__URL": CANARY},
        {"TIDEGATE_LANES": CANARY},
    ],
)
def test_secrets_are_not_in_errors(tmp_path: Path, extra: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(_write(tmp_path, SIM_LANE), _with_secrets(tmp_path, extra))
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_secret_in_a_broken_file_is_not_in_the_error(tmp_path: Path) -> None:
    file = _write(tmp_path, f'[web]\ntoken = "{CANARY}\n')
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("key", ["WEB__TOKEN", "ALERTS__WECOM__KEY", "LANES__SHOPEE__QUERY__TOKEN"])
def test_a_secret_is_taken_without_its_blanks_and_refused_with_a_line_break_in_it(
    tmp_path: Path, key: str
) -> None:
    """One that was read from a file with `$(cat …)` or pasted; no header can hold a line break."""
    file, name = _write(tmp_path, SIM_LANE), f"TIDEGATE_{key}"
    assert f"'{CANARY}'" in repr(
        [_plain(value) for value in _flat(load(file, {name: f" {CANARY}\n"})).values()]
    )
    with pytest.raises(
        ConfigError, match=f"^{key.lower().replace('__', '.')}: .*control character"
    ) as caught:
        load(file, {name: f"{CANARY}\r\nX: 1"})
    assert CANARY not in str(caught.value)


def test_a_token_of_digits_is_text(tmp_path: Path) -> None:
    file = _write(tmp_path, SIM_LANE + "[lanes.shopee.pull]\nphone = 13800000000\n")
    assert load(file, {}).lanes["shopee"].pull.phone.get_secret_value() == "13800000000"
