import asyncio
from typing import Any

import orjson
from stage_play import Show, play

from pipeline.alerts.wecom import WecomAlerts
from pipeline.config import WecomConfig
from pipeline.events import Kind
from pipeline.texts import Texts


def breaker_path(show: Show, stage: str) -> list[str]:
    return [event.detail["after"] for event in show.of_kind(Kind.BREAKER, stage)]


def pauses(show: Show, stage: str) -> list[float]:
    opened = [event for event in show.of_kind(Kind.BREAKER, stage) if event.detail["after"] == "open"]
    return [event.detail["pause"] for event in opened]


class Robot:
    """WeCom, as far as alerts go."""

    def __init__(self, show: Show) -> None:
        self.said: list[tuple[float, str]] = []
        self._show = show
        config = WecomConfig(key="robot")
        self.alerts = WecomAlerts(config, Texts("zh"), show.clock, show.bus, self._post)

    async def _post(self, url: str, params: dict[str, str], body: bytes, timeout: float) -> tuple[int, bytes]:
        text = orjson.loads(body)["text"]["content"]
        assert len(text.encode()) <= 2048
        self.said.append((self._show.clock.monotonic(), text))
        return 200, b'{"errcode":0}'

    def most_in_a_minute(self) -> int:
        return max(sum(at <= other < at + 60 for other, _ in self.said) for at, _ in self.said)


def test_a_black_out_of_ninety_seconds_opens_and_reopens_and_recovers_by_itself():
    async def main(show: Show) -> None:
        robot = Robot(show)
        sending = asyncio.create_task(robot.alerts.run())
        await show.go(40)
        normal = await show.delivered_per_second(20)
        await show.go(10)
        assert show.lane.state() == "degraded"
        await show.go(80)
        began = len(show.events)
        await show.until(lambda: breaker_path(show, "query")[-1:] == ["normal"], 60)
        await show.go(5)
        assert await show.delivered_per_second(10) >= 0.9 * normal
        assert pauses(show, "query") == [10, 20, 40, 60]
        assert breaker_path(show, "query")[-3:] == ["half_open", "degraded", "normal"]
        assert show.dropped == 0
        assert len(show.events) > began
        await show.go(60)
        assert show.lane.state() == "running"
        sending.cancel()
        about_breaker = [text for _, text in robot.said if "熔断" in text]
        assert [text[0] for text in about_breaker] == ["⚠", "✅"], robot.said
        assert robot.most_in_a_minute() <= 20

    play(main, scenario="black_out", rate=60)


def test_a_provider_that_hangs_is_seen_long_before_the_deadline_and_used_again_once_it_returns():
    async def main(show: Show) -> None:
        await show.go(60)
        seen = await show.until(lambda: pauses(show, "query") != [], 60)
        assert seen <= 35
        await show.go(150 - 60 - seen)
        await show.until(lambda: breaker_path(show, "query")[-1:] == ["normal"], 60)
        assert await show.delivered_per_second(20) >= 0.9 * 60
        assert show.lane.status()["stages"]["query"]["hung"] > 0

    play(main, scenario="provider_hangs", rate=60)


def test_a_provider_that_fails_every_other_time_delivers_as_much_as_ever():
    async def main(show: Show) -> None:
        await show.go(120)
        assert await show.delivered_per_second(100) >= 0.9 * 40
        assert show.dropped == 0

    play(main, scenario="brown_out", rate=40, duplicate_share=0)


def test_a_receiver_down_for_ten_minutes_costs_little_and_nobody_has_to_come():
    async def main(show: Show) -> None:
        peak = [0]

        def weigh(show: Show = show) -> bool:
            peak[0] = max(peak[0], show.lane.callback.backlog.bytes)
            return show.clock.monotonic() > 660

        await show.until(weigh, 700)
        assert peak[0] <= 64 * 1024 * 1024
        await show.until(lambda: breaker_path(show, "callback")[-1:] == ["normal"], 90)
        await show.go(10)
        assert await show.delivered_per_second(20) >= 0.9 * 50
        assert show.holds("callback_backlog")
        assert show.holds("drop_rate") == []
        assert show.dropped < 2000

    play(main, scenario="callback_down", rate=50)


def test_slow_callbacks_hold_the_queries_and_lose_nothing():
    async def main(show: Show) -> None:
        await show.go(240)
        assert show.holds("callback_backlog")
        await show.go(60)
        assert show.dropped == 0

    play(main, scenario="slow_callbacks", rate=60, config={"callback": {"backlog_count": 200}})


def test_an_upstream_that_is_down_opens_the_pull_breaker_alone():
    async def main(show: Show) -> None:
        await show.go(120)
        assert pauses(show, "pull")[:2] == [10, 20]
        assert breaker_path(show, "query") == []
        await show.until(lambda: breaker_path(show, "pull")[-1:] == ["normal"], 180)
        assert show.dropped == 0

    play(main, scenario="upstream_down", rate=40)


def test_answers_that_break_off_are_maybe_paid_asked_again_and_delivered_once():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["maybe_paid"] > 50
        truth = show.world.truth()
        assert truth["paid_again"] == 0
        assert truth["paid_cut_off"] > 50

    play(main, rate=30, query={"truncate": 0.1}, duplicate_share=0)


def test_a_callback_accepted_with_its_answer_cut_off_is_sent_again_with_the_same_trace():
    async def main(show: Show) -> None:
        await show.go(90)
        assert show.world.truth()["again_after_cut"] > 20
        assert show.dropped == 0

    play(main, rate=30, callback={"truncate": 0.1})


def test_rubbish_instead_of_answers_is_a_fault_and_ends_nothing():
    async def main(show: Show) -> None:
        await show.go(60)
        assert show.counters["query_faults"] > 100
        assert show.dropped == 0

    play(main, rate=30, query={"garbage": 0.2})


def test_bodies_of_one_byte_a_second_end_with_their_tickets():
    async def main(show: Show) -> None:
        await show.go(400)
        assert show.counters["query_expired"] > 10
        assert show.counters["worker_crashes"] == 0

    play(main, rate=5, query={"slow": 0.05})


def test_everything_failing_a_little_at_once_still_balances() -> None:
    every: dict[str, Any] = {"error": 0.05, "reset": 0.05, "garbage": 0.03, "truncate": 0.03}

    async def main(show: Show) -> None:
        await show.go(120)
        assert show.counters["delivered"] > 0.8 * 30 * 120

    play(main, rate=30, repeat_share=0.05, query=every, callback=every, pull={"error": 0.05, "reset": 0.05})


def test_queries_are_held_at_the_answer_that_is_one_too_many():
    small = {"query": {"workers": 1, "batch": 1}, "callback": {"workers": 1, "batch": 1, "backlog_count": 5}}

    async def main(show: Show) -> None:
        await show.until(lambda: bool(show.holds("callback_backlog")), 30)
        assert show.holds("callback_backlog")[0].detail["count"] == 6
        assert show.counters["queried"] <= 7, "and the one that had begun"

    fast = {"latency": 0.001, "sigma": 0}
    play(
        main,
        rate=200,
        config=small,
        end=False,
        duplicate_share=0,
        processing_share=0,
        query=fast,
        callback={"latency": 60},
    )
