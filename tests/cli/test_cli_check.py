"""`check`, `alert test`, `service`, `version`, `run`: commands that need no daemon."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import pipeline
from pipeline import __version__
from pipeline.cli import commands, main
from pipeline.cli.settings import find_config
from pipeline.errors import ConfigError, Unreachable

SIM = '[lanes.shopee]\nsource = "sim"\nprovider = "sim"\nsink = "sim"\n'
UNIT = Path(__file__).parents[2] / "scripts" / "tidegate.service"
CANARY = "canary-robot-key"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TIDEGATE_CONFIG", "TIDEGATE_ALERTS__WECOM__KEY", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setattr("pipeline.cli.settings.SYSTEM_CONFIG", tmp_path / "no-system-config.toml")
    monkeypatch.chdir(tmp_path)


def tidegate(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def write(text: str) -> Path:
    file = Path("config.toml")
    file.write_text('[daemon]\nlang = "en"\n' + text, encoding="utf-8")
    file.chmod(0o600)
    return file


def _findings(result: Result) -> dict[str, str]:
    return {row["name"]: row["mark"] for row in json.loads(result.stdout)["checks"]}


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_simulated_lane_passes_every_check() -> None:
    write(SIM)
    result = tidegate("check")
    assert result.exit_code == 0, result.output
    assert result.output.count("simulated") == 3
    assert "Asia/Shanghai" in result.output
    assert "✗" not in result.output


def _http(port: int) -> str:
    return "[lanes.shopee]\n" + "".join(
        f'[lanes.shopee.{section}]\nurl = "http://127.0.0.1:{port}"\n'
        for section in ("pull", "query", "callback")
    )


def test_ends_that_can_be_reached_pass(port: int) -> None:
    write(_http(port))
    found = _findings(tidegate("check", "--json"))
    assert [found[f"shopee {stage}"] for stage in ("pull", "query", "callback")] == ["✓"] * 3


def test_ends_that_cannot_be_reached_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    write(_http(closed))
    result = tidegate("check", "--json")
    assert result.exit_code == 1
    assert _findings(result)["shopee query"] == "✗"


def test_an_end_that_does_not_speak_tls_fails(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.cli.check.REACH_TIMEOUT", 0.2)
    write(_http(port).replace("http://", "https://"))
    assert tidegate("check").exit_code == 1


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("no.such.module:Source", "is its folder in PYTHONPATH?"),
        ("pipeline.clock:NoSuchClass", "no attribute 'NoSuchClass'"),
        ("json:loads", "is no class"),
        ("pipeline.clock:SystemClock", "a source needs open, close, pull, volume"),
        ("pipeline.pull.http:HttpSource", "is made with its section and the clock"),
    ],
)
def test_an_end_of_ones_own_that_cannot_be_one_is_said_by_check_and_run(end: str, why: str) -> None:
    write(SIM.replace('source = "sim"', f'source = "{end}"'))
    result = tidegate("check")
    assert result.exit_code == 78
    assert f"✗ shopee pull      {end}: " in result.output
    assert why in result.output
    result = tidegate("run")
    assert result.exit_code == 78
    assert result.output.startswith(f"Error: lanes.shopee.source: {end}: ")
    assert why in result.output


def test_an_end_of_ones_own_that_fits_passes() -> None:
    write(SIM.replace('source = "sim"', 'source = "pipeline.sim.ports:SimSource"'))
    assert _findings(tidegate("check", "--json"))["shopee pull"] == "✓"


def test_an_end_whose_module_fails_is_said_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("failing_ends.py").write_text("1 / 0", encoding="utf-8")
    monkeypatch.syspath_prepend(".")
    write(SIM.replace('source = "sim"', 'source = "failing_ends:Source"'))
    result = tidegate("check")
    assert result.exit_code == 1
    assert "ZeroDivisionError: division by zero" in result.output


def test_a_scenario_that_is_none_is_said_by_check_and_run() -> None:
    write(SIM + '[lanes.shopee.sim]\nscenario = "storm"\n')
    for command in ("check", "run"):
        result = tidegate(command)
        assert result.exit_code == 78
        assert "lanes.shopee.sim.scenario: 'storm' is unknown; known: auth_gone" in result.output


def test_secrets_that_ends_over_http_will_miss_are_a_warning(port: int) -> None:
    write(_http(port))
    result = tidegate("check")
    assert result.exit_code == 0
    assert "! secrets          lanes.shopee.pull.phone is empty" in result.output
    assert "! secrets          lanes.shopee.query.token is empty" in result.output
    write(SIM)
    assert "secrets" not in tidegate("check").output


def test_a_bad_configuration_ends_with_78_and_names_the_key() -> None:
    write("[web]\nport = 'x'\n" + SIM)
    result = tidegate("check")
    assert result.exit_code == 78
    assert "web.port" in result.output


def test_an_unknown_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    write(SIM)
    monkeypatch.setenv("TIDEGATE_WBE__PORT", "1")
    result = tidegate("check")
    assert result.exit_code == 78
    assert "TIDEGATE_WBE__PORT" in result.output


def test_a_file_with_secrets_that_anyone_can_read_is_a_warning() -> None:
    file = write(SIM + '[lanes.shopee.query]\ntoken = "secret"\n')
    assert _findings(tidegate("check", "--json"))["permissions"] == "✓"
    file.chmod(0o644)
    result = tidegate("check", "--json")
    assert result.exit_code == 0
    assert _findings(result)["permissions"] == "!"
    write(SIM + '[lanes.shopee.pull.fields]\ntoken = "name-of-a-field"\n').chmod(0o644)
    assert _findings(tidegate("check", "--json"))["permissions"] == "✓"


def test_a_data_directory_that_is_a_file_fails() -> None:
    write("data_dir = 'occupied'\n" + SIM)
    Path("occupied").write_text("", encoding="utf-8")
    assert _findings(tidegate("check", "--json"))["data"] == "✗"


@pytest.mark.parametrize(
    ("limits", "mark"), [((1 << 20, 1 << 20), "✓"), ((1024, 4096), "!"), ((256, 256), "✗")]
)
def test_too_few_file_descriptors_are_seen(
    limits: tuple[int, int], mark: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.cli.check.resource.getrlimit", lambda _: limits)
    write(_http(port))
    assert _findings(tidegate("check", "--json"))["files"] == mark


def test_a_clock_from_before_the_program_was_built_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.cli.check.SystemClock.now", lambda _: 1000.0)
    write(SIM)
    result = tidegate("check")
    assert result.exit_code == 1
    assert "1970" in result.output


def test_no_file_at_all_and_no_lane_is_a_bad_configuration() -> None:
    assert tidegate("check").exit_code == 78


def test_the_configuration_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_config(None, {}) is None
    system = tmp_path / "system.toml"
    system.write_text("", encoding="utf-8")
    monkeypatch.setattr("pipeline.cli.settings.SYSTEM_CONFIG", system)
    assert find_config(None, {}) == system
    write(SIM)
    assert find_config(None, {}) == Path("config.toml")
    assert find_config(None, {"TIDEGATE_CONFIG": "env.toml"}) == Path("env.toml")
    assert find_config(Path("given.toml"), {"TIDEGATE_CONFIG": "env.toml"}) == Path("given.toml")


def test_a_place_that_cannot_be_looked_at_has_no_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / ("x" * 300) / "config.toml"
    monkeypatch.setattr("pipeline.cli.settings.SYSTEM_CONFIG", hidden)
    assert find_config(None, {}) is None
    assert tidegate("service", "--config", str(hidden)).exit_code == 0
    write(SIM.replace("[lanes", f'data_dir = "{"x" * 300}"\n[lanes', 1))
    assert "data" in _findings(tidegate("check", "--json"))


def _robot(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def post(url: str, params: dict[str, str], body: bytes, timeout: float) -> tuple[int, bytes]:
        assert params == {"key": CANARY}
        if isinstance(answer, Exception):
            raise answer
        return 200, answer

    monkeypatch.setattr(commands, "post_once", post)


def test_the_test_alert_says_how_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    write(f'[alerts.wecom]\nkey = "{CANARY}"\n' + SIM)
    _robot(monkeypatch, b'{"errcode":0}')
    assert tidegate("alert", "test").exit_code == 0
    _robot(monkeypatch, b'{"errcode":93000}')
    assert "key is wrong" in tidegate("alert", "test").output
    _robot(monkeypatch, Unreachable("down"))
    result = tidegate("alert", "test", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["sent"] is False
    assert CANARY not in result.output


def test_a_test_alert_without_a_key_fails() -> None:
    write(SIM)
    result = tidegate("alert", "test")
    assert result.exit_code == 1
    assert result.output == "no WeCom key (alerts.wecom.key): alerts go to the log only\n"


def test_the_unit_names_this_installation() -> None:
    file = write(SIM)
    result = tidegate("service")
    assert result.exit_code == 0
    assert f"--config {file.absolute()}" in result.stdout
    assert "/opt/tidegate" not in result.stdout
    assert "Type=notify" in result.stdout


def test_the_unit_keeps_a_path_with_a_space_in_one_word() -> None:
    folder = Path("my 100% shop")
    folder.mkdir()
    write(SIM).rename(folder / "config.toml")
    result = tidegate("service", "--config", str(folder / "config.toml"))
    written = str(folder.absolute() / "config.toml").replace("%", "%%")
    assert f'--config "{written}"\n' in result.stdout


def test_the_unit_of_a_file_that_is_not_there_is_printed_with_a_note() -> None:
    result = tidegate("service", "--config", "nowhere.toml")
    assert result.exit_code == 0
    assert "there is no" in result.stderr
    assert "nowhere.toml" in result.stderr
    assert "nowhere.toml" in result.stdout


def test_the_shipped_unit_has_what_the_daemon_relies_on() -> None:
    unit = UNIT.read_text(encoding="utf-8").splitlines()
    for line in (
        "Type=notify",
        "NotifyAccess=main",
        "WatchdogSec=30",
        "RestartPreventExitStatus=78",
        "TimeoutStopSec=40",
    ):
        assert line in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_shipped_unit_is_valid_and_well_hardened() -> None:
    verify = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verify.returncode, verify.stdout, verify.stderr) == (0, "", "")
    security = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    score = re.search(r"exposure level for \S+: ([\d.]+)", security.stdout)
    assert score is not None
    assert float(score[1]) <= 1.5


def test_version_is_printed_plain_and_as_json() -> None:
    assert tidegate("version").output.strip() == __version__
    assert tidegate("--version").output.strip() == __version__
    assert json.loads(tidegate("version", "--json").output) == {"version": __version__}


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The engine has its own tests; here only what it is called with."""
    module = types.ModuleType("pipeline.app")
    monkeypatch.setitem(sys.modules, "pipeline.app", module)
    monkeypatch.setattr(pipeline, "app", module, raising=False)
    return module


def test_run_ends_as_the_daemon_does(app: types.ModuleType) -> None:
    file = write(SIM)
    seen: list[Any] = []
    app.run = lambda path: seen.append(path) or 0  # type: ignore[attr-defined]
    assert tidegate("run").exit_code == 0
    assert seen == [Path(file)]


def test_run_with_a_bad_configuration_ends_with_78(app: types.ModuleType) -> None:
    def run(_: Path | None) -> int:
        raise ConfigError("web.port: not a number")

    app.run = run  # type: ignore[attr-defined]
    result = tidegate("run")
    assert result.exit_code == 78
    assert "web.port" in result.output


def test_demo_passes_its_options_on(app: types.ModuleType) -> None:
    seen: list[Any] = []
    app.demo = lambda *given: seen.append(given) or 0  # type: ignore[attr-defined]
    assert tidegate("demo", "--scenario", "tour", "--rate", "50", "--seconds", "3").exit_code == 0
    assert seen == [("tour", 50.0, 3.0, 8090)]


@pytest.mark.parametrize("command", ["sim", "demo"])
def test_an_unknown_scenario_is_wrong_usage(command: str) -> None:
    result = tidegate(command, "--port", "0", "--scenario", "no-such-weather")
    assert result.exit_code == 2
    assert "no-such-weather" in result.output


def test_a_simulation_that_cannot_listen_says_where_and_why(port: int) -> None:
    result = tidegate("sim", "--port", str(port))
    assert result.exit_code == 1
    assert result.output == f"Error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_option_is_explained(command: str) -> None:
    options = [option for option in main.commands[command].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []
