import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import orjson
import pytest

from pipeline.errors import ConfigError
from pipeline.sim.behaviour import Behaviour, changed
from pipeline.sim.server import SimServer, serve

QUICK = changed(
    Behaviour(),
    {
        "rate": 2000,
        "processing_share": 0,
        "offline_share": 0,
        "pull": {"latency": 0},
        "query": {"latency": 0},
        "callback": {"latency": 0},
    },
)
AUTH = {"Authorization": "Bearer secret"}
ASK = {"country": "tw", "shop_id": 5, "item_id": 77, "language": "zh-Hant"}


@pytest.fixture
async def server() -> AsyncIterator[SimServer]:
    running = await serve(port=0, behaviour=QUICK)
    yield running
    await running.close()


@pytest.fixture
async def http(server: SimServer) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url, timeout=aiohttp.ClientTimeout(5)) as session:
        yield session


async def pulled(http: aiohttp.ClientSession, limit: int = 1) -> list[dict[str, Any]]:
    """Until something has arrived: the world's clock is the real one here."""
    for _ in range(500):
        async with http.get("/api/get/tasks", params={"phone": "1", "limit": str(limit)}) as response:
            tasks: list[dict[str, Any]] = (await response.json())["tasks"]
        if tasks:
            return tasks
    raise AssertionError("no ticket came")


def submission(data: dict[str, Any], result: str) -> dict[str, Any]:
    url = f"https://shopee.tw/api/v4/pdp/get_pc?item_id={data['good_id']}&a=3&shop_id={data['shop_id']}&b=0"
    return {"appVersion": "vv2", "url": url, "result": result}


async def test_a_ticket_goes_all_the_way_over_the_wire(server, http):
    data = (await pulled(http))[0]["data"]
    ask = {**ASK, "shop_id": data["shop_id"], "item_id": data["good_id"], "country": data["country"]}
    async with http.post("/request/shopee/pdp", json=ask, headers=AUTH) as response:
        body = await response.read()
    assert response.status == 200
    assert 79_000 < len(body) < 111_000
    result = orjson.dumps(orjson.loads(body)["response"]).decode()
    token = {"Authorization": f"Bearer {data['token']}"}
    async with http.post("/api/task/submit/v2", json=submission(data, result), headers=token) as response:
        assert await response.json() == {"code": 200, "data": {"code": "SUCCESS"}}
    async with http.get("/sim/truth") as response:
        truth = await response.json()
    assert truth["delivered"] == truth["on_time"] == truth["paid"] == truth["results_checked"] == 1
    assert truth["bad_results"] == truth["wrong_token"] == truth["protocol_errors"] == 0


async def test_volume_and_credits_are_told(server, http):
    count = len(await pulled(http, 5))
    async with http.get("/api/curnum", params={"phone": "1", "date": "2025-01-01"}) as response:
        assert await response.json() == {"status": 200, "data": count}
    server.world.change({"credits": 99611})
    async with http.get("/tokens/credits", headers=AUTH) as response:
        assert await response.json() == {"_success": True, "credits": [{"credit": 99611}]}


@pytest.mark.parametrize(
    ("method", "path", "options", "message"),
    [
        ("POST", "/api/get/tasks?phone=1&limit=5", {}, "POST is not allowed"),
        ("GET", "/api/get/tasks?limit=5", {}, "phone is missing"),
        ("GET", "/api/get/tasks?phone=1&limit=0", {}, "limit must be"),
        ("GET", "/api/get/tasks?phone=1&limit=x", {}, "limit must be"),
        ("GET", "/api/curnum?phone=1&date=today", {}, "YYYY-MM-DD"),
        ("GET", "/tokens/credits", {}, "Authorization"),
        ("POST", "/request/shopee/pdp", {"json": ASK}, "Authorization"),
        ("POST", "/request/shopee/pdp", {"data": b"{", "headers": AUTH}, "body"),
        ("POST", "/request/shopee/pdp", {"json": {"country": "tw"}, "headers": AUTH}, "shop_id"),
        ("POST", "/api/task/submit/v2", {"json": {"url": "u"}, "headers": AUTH}, "appVersion"),
        ("POST", "/api/task/submit/v2", {"json": {"appVersion": "v", "url": "u", "result": {}},
                                         "headers": AUTH}, "must be a string"),
    ],
)  # fmt: skip
async def test_a_wrong_request_is_400_with_a_message_and_counted(
    server, http, method, path, options, message
):
    async with http.request(method, path, **options) as response:
        assert response.status == 400
        assert message in (await response.json())["error"]["message"]
    assert server.world.truth()["protocol_errors"] == 1
    assert message in server.world.truth()["messages"][0]


async def test_an_unknown_token_is_404_and_counted(server, http):
    body = submission({"good_id": 1, "shop_id": 2}, "{}")
    async with http.post("/api/task/submit/v2", json=body, headers={"Authorization": "Bearer tok-x"}) as r:
        assert r.status == 404
    assert server.world.truth()["unknown"] == 1


async def ask(http: aiohttp.ClientSession, timeout: float = 5) -> bytes:
    limit = aiohttp.ClientTimeout(timeout)
    async with http.post("/request/shopee/pdp", json=ASK, headers=AUTH, timeout=limit) as response:
        return await response.read()


async def test_a_reset_is_a_real_reset(server, http):
    server.world.change({"query": {"reset": 1.0}})
    with pytest.raises(aiohttp.ClientConnectionError):
        await ask(http)


async def test_a_truncated_answer_breaks_off_in_mid_body(server, http):
    server.world.change({"query": {"truncate": 1.0}})
    with pytest.raises(aiohttp.ClientPayloadError):
        await ask(http)
    assert server.world.truth()["paid_cut_off"] == 1


@pytest.mark.parametrize("fault", ["hang", "slow"])
async def test_an_endless_answer_ends_when_the_client_hangs_up(server, http, fault):
    server.world.change({"query": {fault: 1.0}})
    with pytest.raises(TimeoutError):
        await ask(http, timeout=0.1)
    await until(lambda: server.world.ledger._queries_open == 0)
    server.world.change({"query": {fault: 0.0}})
    await ask(http)
    assert server.world.truth()["concurrent_same_key_max"] == 1


async def until(true: Callable[[], bool]) -> None:
    """A few turns of the loop, for what the other side of a socket has to do."""
    for _ in range(5000):
        if true():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


async def test_a_slow_answer_comes_byte_by_byte(server, http):
    server.world.change({"query": {"slow": 1.0}})
    async with http.post("/request/shopee/pdp", json=ASK, headers=AUTH) as response:
        assert await response.content.readany() == b"{"
        assert response.content_length is not None
        assert response.content_length > 79_000


async def test_a_throttled_query_carries_retry_after(server, http):
    server.world.change({"capacity": 0.001, "retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"})
    await ask(http)
    async with http.post("/request/shopee/pdp", json=ASK, headers=AUTH) as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "Wed, 21 Oct 2026 07:28:00 GMT"


async def send_alert(http: aiohttp.ClientSession, content: str, key: str = "k") -> dict[str, Any]:
    body = {"msgtype": "text", "text": {"content": content}}
    async with http.post("/cgi-bin/webhook/send", params={"key": key}, json=body) as response:
        answer: dict[str, Any] = await response.json()
        return answer


async def test_alerts_are_kept_and_limited_to_20_a_minute(server, http):
    answers = [(await send_alert(http, f"⚠️ {n}"))["errcode"] for n in range(22)]
    assert answers == [0] * 20 + [45009] * 2
    async with http.get("/sim/alerts") as response:
        alerts = (await response.json())["alerts"]
    assert [alert["content"] for alert in alerts][:2] == ["⚠️ 0", "⚠️ 1"]


async def test_wecom_refuses_a_missing_key_a_long_text_and_what_it_is_told_to(server, http):
    assert (await send_alert(http, "x", key=""))["errcode"] == 93000
    assert "2048" in (await send_alert(http, "堆" * 700))["error"]["message"]
    server.world.change({"wecom_errcode": 93000})
    assert (await send_alert(http, "x"))["errcode"] == 93000
    assert not server.alerts


async def test_behaviour_is_changed_over_http_and_an_error_names_the_field(server, http):
    async with http.post("/sim/behaviour", json={"rate": 1, "query": {"error": 0.5}}) as response:
        assert (await response.json())["query"]["error"] == 0.5
    assert server.world.behaviour.rate == 1
    for wrong in ({"query": {"error": 2}}, [1], "x"):
        async with http.post("/sim/behaviour", json=wrong) as response:
            assert response.status == 400
            message = (await response.json())["error"]["message"]
    async with http.post("/sim/behaviour", json={"query": {"error": 2}}) as response:
        message = (await response.json())["error"]["message"]
    assert message.startswith("query.error:")
    assert server.world.truth()["protocol_errors"] == 0


async def test_a_scenario_is_started_over_http(server, http):
    async with http.post("/sim/scenario", json={"name": "duplicates"}) as response:
        assert response.status == 200
    await until(lambda: server.world.behaviour.duplicate_share == 0.9)
    async with http.post("/sim/scenario", json={"name": "nope"}) as response:
        assert response.status == 400
        assert "known: " in (await response.json())["error"]["message"]


async def test_an_unknown_scenario_is_refused_at_the_start():
    with pytest.raises(ConfigError, match="known"):
        await serve(scenario="nope")


async def test_closing_does_not_wait_for_hanging_calls(server, http):
    server.world.change({"query": {"hang": 1.0}})
    call: Awaitable[bytes] = asyncio.ensure_future(ask(http))
    await until(lambda: server.world.ledger._queries_open == 1)
    async with asyncio.timeout(3):
        await server.close()
    with pytest.raises(aiohttp.ClientError):
        await call
