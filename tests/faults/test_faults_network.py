"""Faults 7, 9 and 10: no address, no trust, and bodies without an end."""

from __future__ import annotations

import datetime
import gc
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipeline.events import Kind
from tests.e2e.harness import LANE, eventually, merged, rss_bytes, running
from tests.e2e.test_e2e_bad_input import (
    BAD_ANSWERS,
    MB,
    all_done,
    bad_world,
    entry,
    listed,
    quick,
    still_works,
)
from tests.faults.faulty_world import QUICK_BREAKER, stage
from tests.faults.invariants import Watch, check_invariants

HOST = "provider.invalid"


class Names:
    """Answers for one host name; everything else is the system's."""

    def __init__(self) -> None:
        self.known = False
        self.asked = 0
        self.real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host != HOST:
            return self.real(host, port, *rest, **more)
        self.asked += 1
        if not self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.real("127.0.0.1", port, *rest, **more)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    found = Names()
    monkeypatch.setattr(socket, "getaddrinfo", found)
    return found


async def test_7_a_name_that_cannot_be_resolved_opens_the_breaker_and_is_no_tight_loop(names: Names) -> None:
    names.known = True
    async with stage({"breaker": QUICK_BREAKER, "retry": {"delay": 0.2}}) as play:
        # The world's port is known only now: the lane's provider is told its new address the hard way.
        provider: Any = play.live.daemon.lanes[LANE]._provider
        provider._url = provider._url.replace("127.0.0.1", HOST)
        await play.delivers(20)
        names.known = False
        names.asked = 0
        provider._client._pool._resolver.forget(HOST, play.query.port)
        play.query.reset_all()
        queried = play.counter("queried")

        def opened() -> int:
            return sum(e.detail["after"] == "open" for e in play.watch.of_kind(Kind.BREAKER, "query"))

        await eventually(lambda: opened() >= 3, why=play.live.status)
        # The first trip, what was under way then, and a handful of trials after each pause: no more.
        calls = play.counter("queried") - queried
        slots = 100
        assert calls <= QUICK_BREAKER["trip_after"] + slots + QUICK_BREAKER["trials"] * opened()
        assert 0 < names.asked <= calls
        names.known = True
        await play.delivers(50)
        truth = await play.all_ended()
        assert truth["delivered"] == truth["handed_out"]
        await eventually(lambda: play.told("breaker query", "recover"))


# -- TLS -----------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """One that this process trusts: what is refused is refused for the certificate's own sake."""
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return ca


@pytest.mark.parametrize("wrong", ["expired", "host"])
async def test_9_a_certificate_that_is_expired_or_of_another_host_is_refused_and_told_never_ignored(
    authority: trustme.CA, wrong: str
) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    bad = (
        authority.issue_cert("127.0.0.1", not_after=yesterday)
        if wrong == "expired"
        else authority.issue_cert("somewhere.else.example")
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    bad.configure_cert(context)
    lane = {"breaker": QUICK_BREAKER, "retry": {"delay": 0.2}}
    async with stage(lane, query_tls=context) as play:
        await eventually(lambda: play.counter("query_faults") >= 20)
        await eventually(lambda: any(cause.startswith("tls") for cause, _ in play.all_told()))
        (said,) = play.watch.of_kind(Kind.TLS, "query")
        assert ("expired" if wrong == "expired" else "match") in said.detail["error"]
        assert play.server.world.ledger.counts["queries"] == play.counter("maybe_paid") == 0
        authority.issue_cert("127.0.0.1").configure_cert(context)
        await play.delivers(50)
        truth = await play.all_ended()
        assert truth["delivered"] == truth["handed_out"]


# -- bodies --------------------------------------------------------------------------------------------


async def test_10_a_body_of_20_mb_and_a_gzip_bomb_are_cut_at_max_body_and_memory_stays_bounded() -> None:
    shops = {name: BAD_ANSWERS[name] for name in ("bomb", "20mb", "20mb-chunked")}
    async with bad_world() as bad:
        tree = merged(quick(bad.url), {"lanes": {LANE: {"query": {"max_body": MB}}}})
        async with running(tree) as live:
            watch = Watch(live.daemon)
            bad.hand_out(listed(entry("warm-up")))
            await eventually(lambda: bad.delivered["warm-up"] == 1)
            gc.collect()
            before = rss_bytes()
            bad.bad_answers = dict(shops)
            bad.hand_out(listed(*map(entry, shops)))
            counters = (await all_done(live, bad, 1 + len(shops)))["counters"]
            assert rss_bytes() - before < 100 * MB
            assert counters["query_faults"] == counters["maybe_paid"] == len(shops)
            assert counters["delivered"] == 1 + len(shops)
            assert counters["worker_crashes"] == 0
            await still_works(live, bad)
            check_invariants(watch, None, [])
