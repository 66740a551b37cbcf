"""Who is measured: the daemon, the bare loop, and the same loop on Node with axios and with undici."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import ROOT, clean_environment

HERE = Path(__file__).resolve().parent
NODE_PACKAGES = {"axios": "1.21.1", "undici": "7.30.2"}  # undici 8 needs Node 22
NPM_TIMEOUT = 180
#: glibc gives the top of the heap back at 128 KB, about one page's worth, and then takes it again.
KEEP_HEAP = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TOP_PAD_": str(1 << 24),
}


class Skip(Exception):
    """This runner cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    command: list[str]
    env: Mapping[str, str]
    status_url: str = ""  # where the daemon tells how it is; the others cannot
    patience: float = 3


@dataclass(slots=True)
class Place:
    """Where a run happens: the world's address, the authority to trust, a directory to write in."""

    base: str
    folder: Path
    ca: Path | None = None
    in_flight: int = 0
    modules: Path | None = None
    keep_heap: bool = False

    def env(self, **extra: str) -> dict[str, str]:
        trusting = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS") if self.ca else ()
        return clean_environment({**dict.fromkeys(trusting, str(self.ca)), **extra})

    def python_env(self) -> dict[str, str]:
        """The same for bare and daemon, or their ratio would compare allocators."""
        return self.env(**(KEEP_HEAP if self.keep_heap else {}))


def bare(place: Place) -> Launch:
    return Launch(
        [sys.executable, str(HERE / "bare.py"), place.base, str(place.in_flight)], place.python_env()
    )


def axios(place: Place) -> Launch:
    return _node("axios", place)


def undici(place: Place) -> Launch:
    return _node("undici", place)


def _node(name: str, place: Place) -> Launch:
    modules = place.modules or node_modules()
    command = [_tool("node"), str(HERE / f"{name}.mjs"), place.base, str(place.in_flight)]
    return Launch(command, place.env(BENCH_MODULES=str(modules), NODE_ENV="production"))


def daemon(place: Place) -> Launch:
    """The daemon with its defaults, but without its journal: the bare loops have none either."""
    return _daemon(place, "off")


def journal(place: Place) -> Launch:
    """The daemon as an operator runs it."""
    return _daemon(place, "tickets")


def fallback(place: Place) -> Launch:
    """As `daemon`, over aiohttp's client instead of ours."""
    return _daemon(place, "off", "aiohttp")


def _daemon(place: Place, journal_level: str, client: str = "native") -> Launch:
    command = Path(sys.executable).with_name("tidegate")
    if not command.exists() or not (ROOT / "pipeline" / "app.py").exists():
        raise Skip("the tidegate command is not installed")
    port = free_port()
    config = place.folder / "config.toml"
    config.write_text(daemon_config(place, port, journal_level, client), encoding="utf-8")
    return Launch(
        [str(command), "run", "--config", str(config)],
        place.python_env(),
        status_url=f"http://127.0.0.1:{port}/api/status",
        patience=8,
    )


def daemon_config(place: Place, port: int, journal_level: str, client: str) -> str:
    return f"""
[daemon]
log_level = "warning"
drain_timeout = 2
http_client = "{client}"
data_dir = "{place.folder / "data"}"
[web]
port = {port}
[journal]
level = "{journal_level}"
[lanes.bench.pull]
url = "{place.base}"
phone = "13800000000"
[lanes.bench.query]
url = "{place.base}"
token = "bench"
[lanes.bench.callback]
url = "{place.base}"
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def node_modules() -> Path:
    """The pinned packages, installed once into a cache directory of this user's."""
    cache = _cache_directory()
    if not all(_installed(cache, name, version) for name, version in NODE_PACKAGES.items()):
        _npm_install(cache)
    return cache


def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Skip(f"{name} is not installed")
    return path


def _cache_directory() -> Path:
    cache = Path(tempfile.gettempdir()) / f"tidegate-bench-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    found = cache.lstat()
    # The temp dir is everybody's: a directory someone else prepared could hold someone else's code.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise Skip(f"{cache} is not a directory of ours alone")
    return cache


def _installed(cache: Path, name: str, version: str) -> bool:
    manifest = cache / "node_modules" / name / "package.json"
    return manifest.exists() and f'"version": "{version}"' in manifest.read_text(encoding="utf-8")


def _npm_install(cache: Path) -> None:
    wanted = [f"{name}@{version}" for name, version in NODE_PACKAGES.items()]
    command = [_tool("npm"), "install", "--prefix", str(cache), "--no-package-lock", "--no-save"]
    command += ["--ignore-scripts", "--no-audit", "--no-fund", *wanted]
    try:
        # npm may need the proxy that the runners must not have, so it gets the environment as it is.
        done = subprocess.run(command, cwd=cache, capture_output=True, timeout=NPM_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise Skip(f"npm install took over {NPM_TIMEOUT} s") from None
    if done.returncode:
        # The kind of error only: npm's text names the registry it asked.
        raise Skip(f"npm install failed with exit code {done.returncode}")


RUNNERS = {
    "bare": bare,
    "daemon": daemon,
    "journal": journal,
    "fallback": fallback,
    "axios": axios,
    "undici": undici,
}
TUNED = frozenset({"bare", "axios", "undici"})
PYTHON = frozenset({"bare", "daemon", "journal", "fallback"})
