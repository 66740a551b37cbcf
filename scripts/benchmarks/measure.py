"""What every bench needs: child processes that end with us, and what the kernel says about them."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    # Even a bench that is killed outright leaves nothing running.
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without proxies (all traffic is loopback) and without the daemon's own variables."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("TIDEGATE_")
    }
    return {**kept, **(extra or {})}


class Child:
    """A process under test. Its numbers are read from /proc, so it need not help."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], **options: Any) -> None:
        # In a file, not a pipe: nobody reads while it runs, and a full pipe would stop it.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop()
        self._process = subprocess.Popen(
            list(command),
            env=dict(env),
            start_new_session=True,
            preexec_fn=_die_with_parent,
            stdin=subprocess.DEVNULL,
            stderr=self._stderr,
            **options,
        )
        self.pid = self._process.pid

    @property
    def stdout(self) -> Any:
        return self._process.stdout

    def alive(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def page_faults(self) -> int:
        return page_faults(self.pid)

    def peak_mb(self) -> float:
        return memory_kb(self.pid, "VmHWM") / 1024

    def last_words(self, lines: int = 4) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - 2000))
        return " | ".join(self._stderr.read().decode(errors="replace").strip().splitlines()[-lines:])

    def stop(self, patience: float = 3) -> None:
        """Ask, wait, then kill: it and whatever it started."""
        self._signal_group(signal.SIGTERM)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._signal_group(signal.SIGKILL)
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def _signal_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)


@contextlib.contextmanager
def running(
    command: Sequence[str], env: Mapping[str, str] | None = None, *, patience: float = 3, **options: Any
) -> Iterator[Child]:
    child = Child(command, env if env is not None else clean_environment(), **options)
    try:
        yield child
    finally:
        child.stop(patience)


def end_on_signals() -> None:
    """A plain `kill` unwinds like Ctrl-C, so that every `running` block ends its process."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


def cpu_seconds(pid: int) -> float:
    """User and system time of the whole process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def page_faults(pid: int) -> int:
    """Minor faults: memory taken from the kernel, or given back and taken again."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def memory_kb(pid: int | str, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise LookupError(field)


def machine_busy_seconds() -> float:
    """CPU time all processes have used, and what the host took from this machine."""
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def machine() -> dict[str, Any]:
    """Where the numbers come from. No host name: results are published."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Text columns left, numbers right."""
    grid = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[n]) for row in grid) for n in range(len(head))]
    numeric = [all(_is_number(row[n]) for row in rows) for n in range(len(head))]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in grid
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.lstrip("-").replace(",", "").replace(".", "").rstrip("×%").isdigit()


def write_json(path: str | None, result: Mapping[str, Any]) -> None:
    """To the file, or after the table on standard output where none is named."""
    text = json.dumps(result, indent=2, ensure_ascii=False)
    if path is None:
        print(text)
    else:
        Path(path).write_text(text + "\n", encoding="utf-8")


def say(text: str) -> None:
    """Progress, apart from the result on standard output."""
    print(text, file=sys.stderr, flush=True)
