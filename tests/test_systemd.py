import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.systemd import Notifier


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.settimeout(5)
        yield made


def test_ready_alive_and_stopping_are_one_datagram_each(listener: socket.socket, tmp_path: Path):
    listener.bind(str(tmp_path / "notify"))
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    notifier.ready()
    notifier.alive()
    notifier.alive()
    notifier.stopping()
    assert [listener.recv(100) for _ in range(4)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_an_abstract_socket_is_named_with_an_at_sign(listener: socket.socket, tmp_path: Path):
    name = f"tidegate-test-{tmp_path}"
    listener.bind(f"\0{name}")
    Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()
    assert listener.recv(100) == b"READY=1"


def test_without_systemd_nothing_is_said_and_nothing_fails():
    for environ in ({}, {"NOTIFY_SOCKET": ""}):
        notifier = Notifier(environ)
        notifier.ready()
        notifier.alive()
        notifier.stopping()


def test_a_socket_that_is_gone_fails_nothing(tmp_path: Path):
    Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive()
    Notifier({"NOTIFY_SOCKET": "/" + "x" * 200}).alive()


def test_a_systemd_that_does_not_read_never_blocks_us(listener: socket.socket, tmp_path: Path):
    listener.bind(str(tmp_path / "notify"))
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    for _ in range(5000):
        notifier.alive()
    assert listener.recv(100) == b"WATCHDOG=1"
