"""Alerts to the robot: edges, pairs, the minute's limit, and a robot that fails in every way."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
import structlog
from aiohttp import ClientSession, web

from pipeline.alerts.wecom import TRIES_MAX, WecomAlerts
from pipeline.config import WecomConfig
from pipeline.errors import TimedOut, Unreachable
from pipeline.events import Bus, Event, Kind, Level
from pipeline.texts import Texts

KEY = "canary-robot-key"
OK = (200, b'{"errcode":0,"errmsg":"ok"}')


class FakeClock:
    """Time moves only when told to."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return 1.7e9 + self.time

    def monotonic(self) -> float:
        return self.time

    def step(self) -> float:
        return 0.0

    def adopt(self) -> None: ...

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.time += seconds


class Robot:
    """Stands in for the HTTP client. `answers` is what it says next; then it is content."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.answers: list[tuple[int, bytes] | Exception] = []
        self.bodies: list[dict[str, Any]] = []
        self.times: list[float] = []

    async def __call__(
        self, url: str, params: dict[str, str], body: bytes, timeout: float
    ) -> tuple[int, bytes]:
        assert url.startswith("https://qyapi.weixin.qq.com/")
        assert params == {"key": KEY}
        assert timeout == 10
        self.bodies.append(json.loads(body))
        self.times.append(self.clock.time)
        answer = self.answers.pop(0) if self.answers else OK
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def texts(self) -> list[str]:
        return [body["text"]["content"] for body in self.bodies]


class Desk:
    def __init__(self, **config: Any) -> None:
        self.clock = FakeClock()
        self.bus = Bus()
        self.robot = Robot(self.clock)
        settings = WecomConfig(**{"key": KEY, **config})
        self.alerts = WecomAlerts(settings, Texts("zh"), self.clock, self.bus, self.robot)

    def event(self, kind: Kind, stage: str = "", lane: str = "shopee", **detail: Any) -> None:
        self.bus.publish(Event(self.clock.now(), lane, kind, Level.WARNING, stage, detail))

    def hold(self, reason: str, lane: str = "shopee", **detail: Any) -> None:
        self.event(Kind.HOLD, "pull,query", lane, reason=reason, by="controller", **detail)

    def release(self, reason: str, lane: str = "shopee", **detail: Any) -> None:
        self.event(Kind.RELEASE, "pull,query", lane, reason=reason, by="controller", **detail)

    async def settle(self) -> None:
        """Run until nothing waits, jumping over every pause."""
        while (delay := await self.alerts.run_once()) is not None:
            assert delay > 0, "a delay of nothing would spin"
            self.clock.time += delay


async def test_backpressure_is_worded_as_the_operators_know_it() -> None:
    desk = Desk()
    desk.hold("backpressure", depth=850, high_water=800, low_water=100)
    await desk.settle()
    expected = "⚠️ 队列堆积任务: 850（高水位 800）\n系统将在队列降至 100 以下时自动恢复\n通道: shopee"
    assert desk.robot.texts == [expected]
    assert desk.robot.bodies[0]["msgtype"] == "text"


async def test_a_hard_stop_is_worded_as_the_operators_know_it() -> None:
    desk = Desk()
    desk.hold("drop_rate", rate=0.2154, threshold=0.2, delivered=1000, dropped=275)
    await desk.settle()
    expected = "⚠️ 超时丢弃率: 21.5%（阈值 20%）\n回调成功: 1000\n超时丢弃: 275\n需人工介入恢复"
    assert desk.robot.texts[0].startswith(expected)


async def test_why_and_the_likely_cause_are_told_in_the_language_of_the_alerts() -> None:
    desk = Desk()
    desk.hold("credit", detail="credit is out: code 7")
    desk.event(Kind.CLOCK_SKEW, offset=28800, likely="time zone off by +8 h: check pull.timezone")
    await desk.settle()
    assert "详情: 额度用尽：code 7" in desk.robot.texts[0]
    assert "时区差 +8 小时" in desk.robot.texts[1]


async def test_one_hold_heard_from_two_stages_is_one_alert_and_one_recovery() -> None:
    desk = Desk()
    for stage in ("pull", "query"):
        desk.event(Kind.HOLD, stage, reason="credit")
    for stage in ("pull", "query"):
        desk.event(Kind.RELEASE, stage, reason="credit", lasted=200)
    await desk.settle()
    assert len(desk.robot.texts) == 2
    assert "额度已用尽" in desk.robot.texts[0]
    assert "持续时间: 3 分 20 秒" in desk.robot.texts[1]


@pytest.mark.parametrize("reason", ["manual", "stopped", "success_limit", "breaker"])
async def test_what_an_operator_did_is_no_alert(reason: str) -> None:
    desk = Desk()
    desk.hold(reason)
    desk.release(reason)
    await desk.settle()
    assert desk.robot.texts == []


async def test_a_recovery_that_nothing_preceded_is_not_told() -> None:
    desk = Desk()
    desk.release("backpressure", lasted=5)
    desk.event(Kind.BREAKER, "query", before="degraded", after="normal")
    await desk.settle()
    assert desk.robot.texts == []


async def test_a_breaker_that_opens_again_before_it_recovers_is_one_pair() -> None:
    desk = Desk()
    steps = ("normal", "open", "half_open", "open", "half_open", "degraded", "normal")
    for before, after in pairwise(steps):
        desk.event(Kind.BREAKER, "query", before=before, after=after, why="200 次连续故障", pause=10)
    await desk.settle()
    assert [text.splitlines()[0] for text in desk.robot.texts] == [
        "⚠️ 查询环节熔断，暂停 10 秒",
        "✅ 查询环节熔断已恢复",
    ]


async def test_a_breaker_says_why_calls_fail() -> None:
    desk = Desk()
    detail = {"why": "200 faults in a row", "pause": 10, "fault": "no file descriptors left"}
    desk.event(Kind.BREAKER, "query", before="normal", after="open", **detail)
    desk.event(Kind.BREAKER, "query", before="half_open", after="degraded", fault="HTTP 500")
    await desk.settle()
    assert "最近一次失败: no file descriptors left" in desk.robot.texts[0].splitlines()
    assert "HTTP 500" not in desk.robot.texts[1]


async def test_breakers_of_two_stages_are_two_troubles() -> None:
    desk = Desk()
    for stage in ("query", "callback"):
        desk.event(Kind.BREAKER, stage, before="normal", after="open", pause=10)
    await desk.settle()
    assert len(desk.robot.texts) == 2


async def test_trouble_without_an_end_is_told_once_in_ten_minutes() -> None:
    desk = Desk()
    for _ in range(30):
        desk.event(Kind.TLS, "query", error="certificate has expired")
        desk.event(Kind.TOO_LARGE, "pull", error="body is over 16777216 bytes")
        desk.event(Kind.DESCRIPTORS, "pull", error="no file descriptors left")
        desk.event(Kind.DESCRIPTORS, "query", error="no file descriptors left")
        desk.event(Kind.OVERFLOW, "pull", count=7)
    await desk.settle()
    assert len(desk.robot.texts) == 5
    desk.clock.time += 601
    desk.event(Kind.OVERFLOW, "pull", count=7)
    await desk.settle()
    assert len(desk.robot.texts) == 6


async def test_a_clock_skew_names_the_offset_and_its_likely_cause() -> None:
    desk = Desk()
    desk.event(Kind.CLOCK_SKEW, offset=28800, likely="UTC+8")
    desk.event(Kind.CLOCK_SKEW, offset=0)
    await desk.settle()
    assert "8 小时 0 分" in desk.robot.texts[0]
    assert "UTC+8" in desk.robot.texts[0]
    assert "已消除" in desk.robot.texts[1]


async def test_an_unclean_restart_is_told_and_a_clean_start_is_not() -> None:
    desk = Desk()
    desk.event(Kind.STARTED)
    desk.event(Kind.STARTED, unclean=True, recovered=12, undelivered=3, maybe_paid=4, dropped=5)
    await desk.settle()
    (text,) = desk.robot.texts
    for count in ("找回任务: 12", "已有结果: 3", "重新查询: 4", "已过期: 5"):
        assert count in text


def _most_in_any_minute(times: list[float]) -> int:
    return max(sum(start <= time < start + 60 for time in times) for start in times)


async def test_never_more_than_the_limit_in_any_minute_and_the_rest_is_merged() -> None:
    desk = Desk(per_minute=5)
    for number in range(60):
        desk.hold("backpressure", lane=f"lane{number}", depth=1, high_water=1, low_water=0)
    await desk.settle()
    assert len(desk.robot.texts) == 4, "three on their own, the rest in one digest, one place kept"
    assert "57 条合并" in desk.robot.texts[-1]
    for number in range(200):
        (desk.release if number % 2 == 0 else desk.hold)("backpressure", lane="lane1")
        desk.clock.time += 1
        await desk.alerts.run_once()
    await desk.settle()
    assert _most_in_any_minute(desk.robot.times) <= 5


async def test_a_hard_stop_gets_through_when_the_minute_is_used_up() -> None:
    desk = Desk(per_minute=3)
    for number in range(30):
        desk.hold("credit", lane=f"lane{number}")
    await desk.alerts.run_once()
    desk.hold("drop_rate", rate=0.3, threshold=0.2, delivered=70, dropped=30)
    await desk.alerts.run_once()
    assert desk.robot.texts[-1].startswith("⚠️ 超时丢弃率: 30%")
    assert len(desk.robot.texts) == 3


async def test_a_hard_stop_overtakes_an_alert_that_is_being_tried_again() -> None:
    desk = Desk()
    desk.robot.answers = [Unreachable("down")]
    desk.hold("credit")
    await desk.alerts.run_once()
    desk.hold("drop_rate", rate=0.3, threshold=0.2, delivered=70, dropped=30)
    await desk.alerts.run_once()
    await desk.settle()
    assert [text.splitlines()[0][:8] for text in desk.robot.texts] == [
        "⚠️ 服务商额度",
        "⚠️ 超时丢弃率",
        "⚠️ 服务商额度",
    ]


async def test_a_flood_keeps_the_outbox_bounded_and_the_digest_short() -> None:
    desk = Desk(per_minute=2)
    for number in range(5000):
        desk.hold("auth", lane=f"lane-with-a-long-name-{number % 400}")
        desk.release("auth", lane=f"lane-with-a-long-name-{number % 400}")
    await desk.settle()
    assert all(len(text.encode()) <= 2048 for text in desk.robot.texts)
    assert "另有" in desk.robot.texts[0]


async def test_a_long_text_is_cut_between_characters() -> None:
    desk = Desk()
    desk.hold("journal", detail="磁" * 5000)
    desk.event(Kind.TLS, "query", error="证" * 5000)
    desk.event(Kind.CLOCK_SKEW, offset=60, likely="区" * 5000)
    await desk.settle()
    assert all(len(text.encode()) <= 2048 for text in desk.robot.texts)
    assert desk.robot.texts[2].endswith("…")


async def test_a_wrong_key_is_said_once_and_never_tried_again() -> None:
    desk = Desk()
    desk.robot.answers = [(200, b'{"errcode":93000,"errmsg":"invalid webhook url"}')]
    desk.hold("credit")
    desk.hold("auth")
    await desk.settle()
    desk.hold("backpressure")
    await desk.settle()
    assert len(desk.robot.texts) == 1
    said = [event for event in desk.bus.recent() if event.kind is Kind.ALERT]
    assert len(said) == 1
    assert said[0].level is Level.ERROR
    assert "93000" in said[0].detail["error"]
    assert KEY not in str(said[0])


async def test_a_rate_limit_is_waited_out_for_a_minute() -> None:
    desk = Desk()
    desk.robot.answers = [(200, b'{"errcode":45009,"errmsg":"api freq out of limit"}')]
    desk.hold("credit")
    await desk.settle()
    first, second = desk.robot.times
    assert second - first >= 60


@pytest.mark.parametrize(
    "answer",
    [
        Unreachable("refused"),
        TimedOut("10 s"),
        (502, b"<html>bad gateway</html>"),
        (200, b'{"errcode":-1}'),
        (200, b"[]"),
        RuntimeError("a bug in the client"),
    ],
)
async def test_failures_are_retried_ever_later_and_then_dropped(
    answer: tuple[int, bytes] | Exception,
) -> None:
    desk = Desk()
    desk.robot.answers = [answer] * 50
    desk.hold("credit")
    with structlog.testing.capture_logs() as logs:
        await desk.settle()
    assert len(desk.robot.times) == TRIES_MAX
    gaps = [later - earlier for earlier, later in pairwise(desk.robot.times)]
    assert gaps == sorted(gaps)
    assert any(line["event"] == "an alert was dropped" for line in logs)
    assert KEY not in str(logs)


async def test_the_end_of_a_trouble_nobody_was_told_of_is_not_told_either() -> None:
    desk = Desk()
    desk.robot.answers = [Unreachable("down")] * TRIES_MAX
    desk.hold("credit")
    await desk.settle()
    desk.release("credit", lasted=9)
    desk.hold("auth")
    await desk.settle()
    assert "凭据" in desk.robot.texts[-1]
    assert len(desk.robot.texts) == TRIES_MAX + 1


async def test_a_recovery_waiting_behind_a_lost_alert_goes_with_it() -> None:
    desk = Desk()
    desk.robot.answers = [Unreachable("down")] * TRIES_MAX
    desk.hold("credit")
    await desk.alerts.run_once()
    desk.release("credit", lasted=9)
    await desk.settle()
    assert len(desk.robot.texts) == TRIES_MAX
    desk.hold("credit")
    await desk.settle()
    assert "额度已用尽" in desk.robot.texts[-1]


async def test_without_a_key_one_warning_is_logged_and_nothing_is_sent() -> None:
    with structlog.testing.capture_logs() as logs:
        desk = Desk(key="")
        running = asyncio.create_task(desk.alerts.run())
        desk.hold("credit")
        await asyncio.sleep(0)
        running.cancel()
    assert [line["log_level"] for line in logs] == ["warning"]
    assert desk.robot.texts == []
    assert "未配置" in await desk.alerts.send_test()


async def test_mentions_are_sent_where_configured() -> None:
    desk = Desk(mention=["@all"])
    desk.hold("credit")
    await desk.settle()
    assert desk.robot.bodies[0]["text"]["mentioned_list"] == ["@all"]


async def test_an_event_that_cannot_be_worded_does_not_disturb_its_publisher() -> None:
    desk = Desk()
    desk.hold("drop_rate", rate="very high", lasted=object())
    desk.event(Kind.BREAKER, "query", after=["open"])
    desk.event(Kind.CLOCK_SKEW, offset="much", likely=None)
    await desk.settle()
    assert desk.robot.texts[0].startswith("⚠️ 超时丢弃率: ?%")


async def test_the_test_message_reports_what_the_robot_said() -> None:
    desk = Desk()
    assert await desk.alerts.send_test() == "测试消息已送达企业微信"
    desk.robot.answers = [(200, b'{"errcode":93000}'), Unreachable(f"https://x/?key={KEY}")]
    assert "key 无效" in await desk.alerts.send_test()
    outcome = await desk.alerts.send_test()
    assert "Unreachable" in outcome
    assert KEY not in outcome


async def test_the_loop_sends_what_comes_while_it_sleeps() -> None:
    desk = Desk()
    running = asyncio.ensure_future(desk.alerts.run())
    for _ in range(3):
        await asyncio.sleep(0)
    desk.hold("credit")
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(desk.robot.texts) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_flush_does_not_wait_for_a_robot_that_hangs() -> None:
    desk = Desk()

    async def hang(*_: object) -> tuple[int, bytes]:
        await asyncio.Event().wait()
        raise AssertionError

    desk.alerts._post = hang
    desk.hold("credit")
    async with asyncio.timeout(5):
        await desk.alerts.flush(0.05)


async def test_a_real_server_receives_what_wecom_would() -> None:
    received: list[tuple[str, Any]] = []

    async def send(request: web.Request) -> web.Response:
        received.append((request.query["key"], await request.json()))
        return web.json_response({"errcode": 0, "errmsg": "ok"})

    app = web.Application()
    app.router.add_post("/cgi-bin/webhook/send", send)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async def post(url: str, params: dict[str, str], body: bytes, timeout: float) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        async with (
            ClientSession() as session,
            session.post(url, params=params, data=body, headers=headers) as answer,
        ):
            return answer.status, await answer.read()

    bus = Bus()
    config = WecomConfig(key=KEY, url=f"http://127.0.0.1:{port}/cgi-bin/webhook/send")
    alerts = WecomAlerts(config, Texts("en"), FakeClock(), bus, post)
    bus.publish(Event(0.0, "shopee", Kind.HOLD, detail={"reason": "credit"}))
    await alerts.run_once()
    await runner.cleanup()
    [(key, message)] = received
    assert key == KEY
    assert message["text"]["content"].startswith("⚠️ Provider credit is used up")
