"""The command line against a stand-in daemon: what it sends, what it prints, how it ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pipeline.cli import control, main
from pipeline.cli.table import table, width

SIM = '[lanes.shopee]\nsource = "sim"\nprovider = "sim"\nsink = "sim"\n'

STATUS: dict[str, Any] = {
    "version": "1.2.3",
    "uptime": 200,
    "now": 1_700_000_100,
    "lanes": {
        "shopee": {
            "state": "hard_stopped",
            "holds": {
                "pull": [
                    {
                        "reason": "drop_rate",
                        "since": 1_700_000_000,
                        "by": "controller",
                        "detail": "21.5%",
                        "releases": "operator",
                    }
                ],
                "query": [],
                "callback": [],
            },
            "stages": {
                name: {
                    "mode": "half_open" if name == "query" else "normal",
                    "slots": 500,
                    "busy": 3,
                    "rate_per_min": 60.0,
                    "window": {"total": 10, "faults": 1, "fault_rate": 0.1},
                    "last_fault": {"why": "HTTP 503", "ago": 61.0},
                    "latency": {"p50": 0.05, "p95": None, "p99": None},
                }
                for name in ("pull", "query", "callback")
            },
            "queue": {
                "pending": 5,
                "delayed": 1,
                "in_flight": 2,
                "high_water": 800,
                "low_water": 100,
                "oldest_age": 4.5,
            },
            "callbacks": {"pending": 1, "retrying": 0, "bytes": 1 << 20},
            "counters": {
                "pulled": 3010,
                "delivered": 2000,
                "rejected": 3,
                "duplicates": 4,
                "pull_expired": 5,
            },
            "dropped": {"query_stale": 900, "retry_exhausted": 98},
            "drop_rate": {"rate": 0.215, "dropped": 275, "delivered": 1000, "level": "stop"},
            "conservation": {"pulled": 10, "accounted": 9, "balanced": False},
            "credits": {"balance": 99611.0, "spent": 10, "per_delivery": 1.25, "hours_left": None},
        }
    },
}


class StandIn:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any, str | None]] = []
        self.answers: dict[str, tuple[int, Any]] = {"/api/status": (200, STATUS)}
        self.events: list[list[dict[str, Any]]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                stand_in.calls.append((self.command, self.path, body, self.headers.get("Authorization")))
                status, answer = stand_in.answer(self.path.partition("?")[0])
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _answer

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    def answer(self, path: str) -> tuple[int, Any]:
        if path == "/api/events" and self.events:
            return 200, {"events": self.events.pop(0)}
        return self.answers.get(path, (200, {"ok": True, "lanes": {}}))

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)


@pytest.fixture
def daemon() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.close()


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TIDEGATE_URL", "TIDEGATE_TOKEN", "TIDEGATE_CONFIG", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setattr("pipeline.cli.settings.SYSTEM_CONFIG", tmp_path / "no-system-config.toml")
    monkeypatch.chdir(tmp_path)


def tidegate(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_status_is_a_table_in_english(daemon: StandIn) -> None:
    result = tidegate("status", "--url", daemon.url)
    assert result.exit_code == 0
    for part in (
        "hard stopped",
        "half open",
        "drop rate: 21.5%",
        "(1 min 40 s)",
        "2000 delivered, 998 dropped",
        "NOT balanced",
        "99611",
    ):
        assert part in result.output
    assert "pull: HTTP 503 (1 min 1 s ago), query: HTTP 503 (1 min 1 s ago)" in result.output


def test_status_is_a_table_in_chinese_whose_columns_line_up(
    daemon: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    lines = tidegate("status", "--url", daemon.url).output.splitlines()
    assert "紧急停止" in lines[2]
    heading = next(number for number, line in enumerate(lines) if "环节" in line)
    columns = [
        width(line[: line.index(mark)])
        for line, mark in zip(lines[heading : heading + 4], ("并发", "500", "500", "500"), strict=True)
    ]
    assert len(set(columns)) == 1


def test_a_hold_is_told_in_chinese_but_for_what_an_operator_typed(
    daemon: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    typed = {"reason": "manual", "by": "api ::1", "detail": "idle", "releases": "operator, or after 60 s"}
    found = {"reason": "breaker", "by": "breaker", "detail": "200 faults in a row", "releases": "by itself"}
    lane = STATUS["lanes"]["shopee"] | {"holds": {"pull": [typed], "query": [found]}}
    daemon.answers["/api/status"] = (200, STATUS | {"lanes": {"shopee": lane}})
    rows = [line.split() for line in tidegate("status", "--url", daemon.url).output.splitlines()]
    assert ["拉取", "人工暂停:", "idle", "-", "接口", "::1", "人工，或", "60", "秒后"] in rows
    assert ["查询", "熔断:", "连续", "200", "次故障", "-", "熔断", "自动"] in rows


def test_status_as_json_is_what_the_daemon_said(daemon: StandIn) -> None:
    assert json.loads(tidegate("status", "--url", daemon.url, "--json").output) == STATUS


def test_watch_refreshes_until_interrupted(daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(control, "_wait", wait)
    result = tidegate("status", "--watch", "--url", daemon.url)
    assert result.exit_code == 0
    assert waits == [1.0] * 3
    assert len(daemon.calls) == 3


def test_a_status_with_parts_missing_is_still_shown(daemon: StandIn) -> None:
    daemon.answers["/api/status"] = (
        200,
        {"lanes": {"a": {}, "b": {"stages": {"pull": {}}, "credits": None}}},
    )
    assert tidegate("status", "--url", daemon.url).exit_code == 0


def test_what_the_daemon_says_cannot_steer_the_terminal(daemon: StandIn) -> None:
    daemon.answers["/api/status"] = (
        200,
        {"version": "\x1b[2J", "lanes": {"\x1b]0;x\x07": {"state": "\x1b[31m"}}},
    )
    assert "\x1b" not in tidegate("status", "--url", daemon.url).output


def test_pause_sends_reason_time_and_lane(daemon: StandIn) -> None:
    result = tidegate("pause", "--reason", "维护", "--for", "60", "--lane", "shopee", "--url", daemon.url)
    assert result.exit_code == 0
    assert daemon.calls == [("POST", "/api/pause?lane=shopee", {"reason": "维护", "for": 60.0}, None)]


@pytest.mark.parametrize("verb", ["resume", "start", "stop", "shutdown"])
def test_the_other_orders_send_an_empty_object(daemon: StandIn, verb: str) -> None:
    result = tidegate(verb, "--url", daemon.url)
    assert result.exit_code == 0
    assert daemon.calls == [("POST", f"/api/{verb}", {}, None)]


def test_a_refusal_is_shown_and_ends_with_one(daemon: StandIn) -> None:
    daemon.answers["/api/pause"] = (404, {"error": {"code": "unknown_lane", "message": "no lane 'x'"}})
    result = tidegate("pause", "--lane", "x", "--url", daemon.url)
    assert result.exit_code == 1
    assert "no lane 'x'" in result.output


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, b"[]"), (500, b"oops"), (302, b"")])
def test_an_answer_that_is_not_ours_ends_with_one(daemon: StandIn, answer: tuple[int, bytes]) -> None:
    daemon.answers["/api/status"] = answer
    assert tidegate("status", "--url", daemon.url).exit_code == 1
    assert [path for _, path, _, _ in daemon.calls] == ["/api/status"], "redirects are not followed"


def test_no_daemon_ends_with_three(daemon: StandIn) -> None:
    daemon.close()
    result = tidegate("status", "--url", daemon.url)
    assert result.exit_code == 3
    assert daemon.url in result.output


def test_proxies_of_the_environment_are_not_used(daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert tidegate("status", "--url", daemon.url).exit_code == 0


def _config(port: int, token: str = "conf-token") -> None:
    text = f'[daemon]\nlang = "en"\n[web]\nport = {port}\ntoken = "{token}"\n' + SIM
    Path("config.toml").write_text(text, encoding="utf-8")


def test_address_and_token_come_from_the_configuration(daemon: StandIn) -> None:
    _config(daemon.server.server_port)
    assert tidegate("status").exit_code == 0
    assert daemon.calls[0][3] == "Bearer conf-token"


def test_the_environments_token_wins(daemon: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    _config(daemon.server.server_port)
    monkeypatch.setenv("TIDEGATE_TOKEN", "env-token")
    monkeypatch.setenv("TIDEGATE_URL", daemon.url + "/")
    assert tidegate("status").exit_code == 0
    assert daemon.calls[0][3] == "Bearer env-token"


def test_the_configured_token_is_not_sent_to_another_address(daemon: StandIn) -> None:
    _config(1)
    assert tidegate("status", "--url", daemon.url).exit_code == 0
    assert daemon.calls[0][3] is None


def test_a_broken_file_does_not_keep_an_operator_from_a_running_daemon(daemon: StandIn) -> None:
    Path("config.toml").write_text("[daemon]\nlagn = 1\n", encoding="utf-8")
    result = tidegate("pause", "--url", daemon.url)
    assert result.exit_code == 0
    assert "daemon.lagn" in result.stderr


def test_a_broken_file_given_by_name_ends_with_78(daemon: StandIn) -> None:
    Path("config.toml").write_text("[daemon]\nlagn = 1\n", encoding="utf-8")
    assert tidegate("status", "--config", "config.toml", "--url", daemon.url).exit_code == 78


def test_wrong_usage_ends_with_two() -> None:
    assert tidegate("pause", "--for", "soon").exit_code == 2
    assert tidegate("pause", "--for", "0").exit_code == 2
    assert tidegate("events", "--limit", "0").exit_code == 2
    assert tidegate("dance").exit_code == 2
    for url in ("http://[", "file:///etc/hostname", "127.0.0.1:8090", "http://h:port"):
        assert tidegate("status", "--url", url).exit_code == 2


@pytest.mark.parametrize("verb", ["stop", "resume"])
def test_who_leaves_a_lane_stopped_is_told_how_it_starts_again(daemon: StandIn, verb: str) -> None:
    held = {"pull": [{"reason": "stopped"}], "query": [{"reason": "stopped"}], "callback": []}
    lanes = {"shopee": {"state": "stopped", "holds": held, "released": []}}
    daemon.answers[f"/api/{verb}"] = (200, {"ok": True, "lanes": lanes})
    assert "shopee: stopped (to start it, type: tidegate start)" in tidegate(verb, "--url", daemon.url).output


def _event(seq: int) -> dict[str, Any]:
    return {
        "seq": seq,
        "at": 1_700_000_000.0,
        "lane": "shopee",
        "kind": "hold",
        "level": "warning",
        "stage": "pull",
        "detail": {"reason": f"number-{seq}"},
    }


def test_events_are_printed_oldest_first(daemon: StandIn) -> None:
    daemon.events = [[_event(2), _event(1)]]
    lines = tidegate("events", "--url", daemon.url).output.splitlines()
    assert [line.rsplit("held: ")[1] for line in lines] == ["number-1", "number-2"]


@pytest.mark.parametrize(
    ("kind", "detail", "en", "zh"),
    [
        (
            "hold",
            {"reason": "manual", "by": "api 127.0.0.1", "detail": "lunch", "releases": "operator"},
            "shopee/pull  held: manual pause  lunch · API 127.0.0.1",
            "shopee/拉取  暂停：人工暂停  lunch · 接口 127.0.0.1",
        ),
        (
            "breaker",
            {"before": "normal", "after": "open", "why": "200 faults in a row", "pause": 10.0},
            "breaker normal → open  200 faults in a row",
            "熔断器 正常 → 熔断  连续 200 次故障",
        ),
        (
            "config",
            {"changed": ["a.b", "c.d"], "needs_restart": ["e.f"]},
            "configuration in force: a.b, c.d · needs a restart: e.f",
            "配置已生效：a.b, c.d · 重启后才生效：e.f",
        ),
        (
            "config",
            {"error": "web.port: too large"},
            "configuration refused, nothing changed: web.port: too large",
            "配置被拒绝，什么都没改：web.port: too large",
        ),
        (
            "clock_skew",
            {"offset": 28800, "likely": "time zone off by +8 h: check pull.timezone"},
            "ticket times are off by 8 h 0 min: time zone off by +8 h: check pull.timezone",
            "任务时间偏差 8 小时 0 分：时区差 +8 小时：请检查 pull.timezone",
        ),
        (
            "started",
            {"unclean": True, "recovered": 9, "undelivered": 2, "maybe_paid": 1, "dropped": 0},
            "started after an unclean exit: 9 taken up, 2 with answers, 1 perhaps paid twice, 0 too late",
            "上次异常退出后重启：接手 9 个，已有结果 2，可能重复计费 1，已超时 0",
        ),
        ("started", {}, "started", "已启动"),
        ("from_tomorrow", {"new": [1, 2], "empty": ""}, "from_tomorrow new=1, 2", "from_tomorrow new=1, 2"),
    ],
)
def test_an_event_is_told_in_the_readers_words(
    daemon: StandIn, monkeypatch: pytest.MonkeyPatch, kind: str, detail: dict[str, Any], en: str, zh: str
) -> None:
    for locale, told in (("en_US.UTF-8", en), ("zh_CN.UTF-8", zh)):
        monkeypatch.setenv("LC_ALL", locale)
        daemon.events = [[_event(1) | {"kind": kind, "detail": detail}]]
        assert tidegate("events", "--url", daemon.url).output.rstrip().endswith(told)


def test_following_prints_each_event_once_says_what_was_missed_and_survives_a_restart(
    daemon: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.events = [[_event(2), _event(1)], [_event(2)], [_event(6), _event(2)], [_event(1)]]
    rounds = iter(range(3))

    def wait(_: float) -> None:
        if next(rounds, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(control, "_wait", wait)
    result = tidegate("events", "-f", "--url", daemon.url, "--json")
    assert result.exit_code == 0
    assert [json.loads(line)["seq"] for line in result.stdout.splitlines()] == [1, 2, 6, 1]
    assert "3 events" in result.stderr


def test_following_waits_for_a_daemon_that_went_away(
    daemon: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.events = [[_event(1)]]
    rounds = iter(range(2))

    def wait(_: float) -> None:
        round_number = next(rounds, None)
        if round_number is None:
            raise KeyboardInterrupt
        if round_number == 0:
            daemon.close()

    monkeypatch.setattr(control, "_wait", wait)
    result = tidegate("events", "-f", "--url", daemon.url)
    assert result.exit_code == 0
    assert result.stderr.count("connection lost") == 1


def test_a_table_counts_a_chinese_character_as_two() -> None:
    lines = table([["环节", "x"], ["pull", "y"], ["a", "z"]], indent="")
    assert [width(line[:-1]) for line in lines] == [6, 6, 6]


def test_the_test_alert_reaches_a_real_server_and_hides_the_key(daemon: StandIn) -> None:
    Path("config.toml").write_text(
        f'[daemon]\nlang = "en"\n[alerts.wecom]\nkey = "canary-key"\nurl = "{daemon.url}/send"\n' + SIM,
        encoding="utf-8",
    )
    daemon.answers["/send"] = (200, {"errcode": 0})
    assert tidegate("alert", "test").exit_code == 0
    method, path, body, _ = daemon.calls[0]
    assert (method, path, body["msgtype"]) == ("POST", "/send?key=canary-key", "text")
    daemon.answers["/send"] = (502, b"bad gateway")
    assert "HTTP 502" in tidegate("alert", "test").output
    daemon.close()
    result = tidegate("alert", "test")
    assert result.exit_code == 1
    assert "canary-key" not in result.output
