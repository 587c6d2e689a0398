"""Sampling the sidecars under load with py-spy: where the microseconds of a call go."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench import accounting, wrk
from bench.daemon import BenchError
from bench.measures import Rig

RATE_HZ = 400
# Threads that wait for work: py-spy counts them as running on some kernels.
WAITING = ("wait (threading.py", "Condition.wait (threading.py", "_worker (concurrent/futures/thread.py")
_FRAME = re.compile(r"(?P<function>.+) \((?P<file>[^():]+)(?::\d+)?\)")


@dataclass(frozen=True)
class Profile:
    """Folded stacks (`a;b;c count` lines) of one process, and what each call cost it, in µs of CPU."""

    name: str
    stacks: str
    call_us: float


def record(rig: Rig, build: str, connections: int, seconds: int, native: bool, keep: Path | None) -> list[Profile]:
    """A profile of each hop, taken while wrk loads the pair. Raises BenchError when py-spy cannot."""
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        raise BenchError("py-spy is missing: install the extra with `pip install -e '.[dev]'`.")
    pair = rig.pairs[build]
    directory = keep or rig.directory
    directory.mkdir(parents=True, exist_ok=True)
    files = [directory / f"{hop.name}.stacks" for hop in pair.hops]
    watchers = []
    for hop, file in zip(pair.hops, files, strict=True):
        command = [spy, "record", "--pid", str(hop.pid), "--duration", str(seconds), "--rate", str(RATE_HZ)]
        command += ["--format", "raw", "--output", str(file), *(["--native"] if native else [])]
        watchers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        before = [accounting.cpu_ns(pid) for pid in pair.pids]
        load = wrk.run(pair.url("/process"), connections, seconds, rig.script)
        booked = [accounting.cpu_ns(pid) - earlier for pid, earlier in zip(pair.pids, before, strict=True)]
        load.require_clean(pair.name)
        for watcher in watchers:
            said, _ = watcher.communicate(timeout=seconds + 60)
            if watcher.returncode:
                raise BenchError(f"py-spy failed (it needs the right to trace, often root):\n{said.strip()}")
    finally:
        for watcher in watchers:
            watcher.kill()
    return [
        Profile(hop.name, file.read_text(), ns / 1000 / load.calls)
        for hop, file, ns in zip(pair.hops, files, booked, strict=True)
    ]


def summary(profile: Profile, top: int) -> str:
    """The `top` functions by what they cost themselves, then the files."""
    own, within, total = count(profile.stacks)
    scale = profile.call_us / max(1, total)
    lines = [f"{profile.name}: {profile.call_us:.0f} µs of CPU per call, {total} samples", ""]
    lines += ["   self µs  within µs  function"]
    for function, samples in own.most_common(top):
        lines.append(f"{samples * scale:10.1f} {within[function] * scale:10.1f}  {function}")
    files: Counter[str] = Counter()
    for function, samples in own.items():
        match = _FRAME.fullmatch(function)
        files[match["file"] if match else function] += samples
    lines += ["", "   self µs  file"]
    lines += [f"{samples * scale:10.1f}  {file}" for file, samples in files.most_common(top)]
    return "\n".join(lines) + "\n"


def count(stacks: str) -> tuple[Counter[str], Counter[str], int]:
    """(samples per innermost function, per function anywhere on the stack, all samples).

    Lines of a function are merged; threads that wait for work are left out.
    """
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    total = 0
    for line in stacks.splitlines():
        frames, _, samples = line.rpartition(" ")
        if not samples.isdigit() or not frames or frames.rpartition(";")[2].startswith(WAITING):
            continue
        functions = [_function(frame) for frame in frames.split(";")]
        own[functions[-1]] += int(samples)
        for function in set(functions):
            within[function] += int(samples)
        total += int(samples)
    return own, within, total


def _function(frame: str) -> str:
    """`call (reach_sidecar/forward/send.py:31)` -> `call (reach_sidecar/forward/send.py)`."""
    match = _FRAME.fullmatch(frame)
    return f"{match['function']} ({match['file']})" if match else frame
