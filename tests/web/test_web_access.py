"""Who may speak to the endpoint."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from pipeline.config import WebConfig
from pipeline.web.access import AccessRules

TOKEN = "canary-token-日本"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


async def status_of(http, method, path, **headers) -> tuple[int, str]:
    async with http.request(method, path, headers=headers) as response:
        body = await response.json() if response.content_type == "application/json" else {}
        return response.status, body.get("error", {}).get("code", "")


def port_of(http: aiohttp.ClientSession) -> int:
    return http._base_url.port


async def test_our_own_names_are_served_with_our_port_or_none(http):
    port = port_of(http)
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST", "[0:0::1]"):
        for host in (name, f"{name}:{port}"):
            assert (await status_of(http, "GET", "/api/status", Host=host))[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "localhost:1",
        "localhost.",
        "10.0.0.1",
        "",
        "a b",
        "[::1",
        "x:y",
    ],
)
async def test_another_host_is_421_also_for_probes_and_unknown_paths(http, host):
    for path in ("/api/status", "/livez", "/", "/nothing"):
        assert await status_of(http, "GET", path, Host=host) == (421, "wrong_host")


async def test_a_request_without_host_is_421(http):
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(http))
    writer.write(b"GET /api/status HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert b" 421 " in answer.split(b"\r\n")[0]


async def test_allowed_hosts_are_served_by_name_or_by_name_and_port(serve):
    http = await serve(allowed_hosts=("gate.example", "other.example:8443"))
    for host, expected in (
        ("gate.example", 200),
        ("gate.example:443", 200),
        ("other.example:8443", 200),
        ("other.example", 421),
        ("x.gate.example", 421),
    ):
        assert (await status_of(http, "GET", "/api/status", Host=host))[0] == expected


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "file://", "ftp://127.0.0.1", ""]
)
async def test_a_foreign_origin_is_403_for_get_post_options_and_websocket(http, daemon, origin):
    for method, path in (("GET", "/api/status"), ("POST", "/api/pause"), ("OPTIONS", "/api/pause")):
        assert await status_of(http, method, path, Origin=origin) == (403, "foreign_origin")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await http.ws_connect("/ws", headers={"Origin": origin})
    assert refused.value.status == 403
    assert daemon.lanes["shopee"].calls == []


async def test_our_own_origin_may_call(http):
    origin = f"http://127.0.0.1:{port_of(http)}"
    assert (await status_of(http, "POST", "/api/pause", Origin=origin))[0] == 200
    async with http.ws_connect("/ws", headers={"Origin": origin}) as socket:
        assert (await socket.receive_json())["type"] == "hello"


async def test_behind_a_proxy_the_origin_has_the_schemes_default_port(serve):
    http = await serve(allowed_hosts=("gate.example",))
    for origin, expected in (("https://gate.example", 200), ("https://gate.example:444", 403)):
        headers = {"Host": "gate.example", "Origin": origin}
        assert (await status_of(http, "GET", "/api/status", **headers))[0] == expected


async def test_an_allowed_origin_may_call_and_still_gets_no_cors(serve):
    http = await serve(allowed_origins=("https://desk.example",))
    headers = {"Origin": "https://desk.example", "Sec-Fetch-Site": "cross-site"}
    async with http.post("/api/pause", headers=headers) as response:
        assert response.status == 200
        assert not [name for name in response.headers if name.lower().startswith("access-control")]


async def test_a_post_from_another_site_is_403_even_without_an_origin(http, daemon):
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert await status_of(http, "POST", "/api/pause", **headers) == (403, "foreign_origin")
    assert (await status_of(http, "GET", "/", **headers))[0] == 200
    assert daemon.lanes["shopee"].calls == []


async def test_with_a_token_only_probes_and_the_panel_are_open(serve):
    http = await serve(token=TOKEN)
    for path in ("/livez", "/readyz", "/", "/static/app.js", "/static/style.css"):
        assert (await status_of(http, "GET", path))[0] == 200
    for path in ("/api/status", "/api/events", "/metrics", "/openapi.json", "/nothing"):
        async with http.get(path) as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"].startswith("Bearer")
            assert (await response.json())["error"]["code"] == "unauthorized"


async def test_the_right_token_opens_and_anything_like_it_does_not(serve, daemon):
    http = await serve(token=TOKEN)
    assert (await status_of(http, "POST", "/api/pause", **BEARER))[0] == 200
    for wrong in (f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ", "Bearer", TOKEN, f"Basic {TOKEN}"):
        assert (await status_of(http, "POST", "/api/stop", Authorization=wrong))[0] == 401
    assert [call[0] for call in daemon.lanes["shopee"].calls] == ["pause"]


async def test_a_token_in_the_url_is_never_accepted(serve):
    http = await serve(token="plain")
    for name in ("token", "access_token"):
        assert (await status_of(http, "GET", f"/api/status?{name}=plain"))[0] == 401


async def test_a_path_that_climbs_out_of_static_opens_nothing(serve):
    http = await serve(token=TOKEN)
    for path in ("/static/../api/status", "/static/%2e%2e/api/status", "/static/..%2fapi/status"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(http))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert b'"lanes"' not in answer
        assert answer.split(b" ")[1] in (b"401", b"403", b"404")


async def test_every_answer_carries_the_security_headers(http):
    for path in ("/", "/api/status", "/nothing", "/static/app.js"):
        async with http.get(path) as response:
            policy = response.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Referrer-Policy"] == "no-referrer"
            assert "aiohttp" not in response.headers["Server"]
    async with http.get("/api/status") as response:
        assert response.headers["Cache-Control"] == "no-store"


async def test_the_panel_has_no_inline_script_or_style(http):
    async with http.get("/") as response:
        page = await response.text()
    assert response.content_type == "text/html"
    for forbidden in ("<script>", "<style", " style=", " onclick=", "javascript:"):
        assert forbidden not in page
    async with http.get("/static/app.js") as response:
        assert "innerHTML" not in await response.text()


async def test_get_changes_nothing(http, daemon):
    for verb in ("pause", "resume", "start", "stop", "shutdown"):
        assert (await status_of(http, "GET", f"/api/{verb}"))[0] == 405
    assert daemon.lanes["shopee"].calls == []
    assert daemon.shutdowns == []


async def test_a_malformed_request_is_logged_without_its_text(serve, caplog):
    http = await serve(token=TOKEN)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(http))
    writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer canary\x00\r\n\r\n")
    assert b" 400 " in await reader.read(64)
    writer.close()
    assert "malformed request" in caplog.text
    assert "canary" not in caplog.text


def test_the_token_is_in_no_text_of_the_rules():
    assert TOKEN not in repr(AccessRules(WebConfig(token=TOKEN)))
