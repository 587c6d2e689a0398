"""Sampling the sidecars under load with py-spy."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from bench import wrk
from bench.daemon import BenchError
from bench.measures import Rig

RATE_HZ = 400
# Threads that wait for work: py-spy counts them as running on some kernels.
WAITING = ("wait (threading.py", "Condition.wait (threading.py", "_worker (concurrent/futures/thread.py")


def record(rig: Rig, connections: int, seconds: int, native: bool, keep: Path | None) -> dict[str, str]:
    """Folded stacks (`a;b;c count` lines) of each hop while wrk loads the pair, by the process' name."""
    spy = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if spy is None:
        raise BenchError("py-spy is missing: install the extra with `pip install -e '.[dev]'`.")
    pair = rig.pairs["reach"]
    directory = keep or rig.directory
    directory.mkdir(parents=True, exist_ok=True)
    files = {hop.name: directory / f"{hop.name}.stacks" for hop in pair.hops}
    watchers = []
    for hop in pair.hops:
        command = [spy, "record", "--pid", str(hop.pid), "--duration", str(seconds), "--rate", str(RATE_HZ)]
        command += ["--format", "raw", "--output", str(files[hop.name]), *(["--native"] if native else [])]
        watchers.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        load = wrk.run(pair.url("/process"), connections, seconds + 1, rig.script)
        load.require_clean("reach")
        for watcher in watchers:
            said, _ = watcher.communicate(timeout=seconds + 60)
            if watcher.returncode:
                raise BenchError(f"py-spy failed (it needs the right to trace, often root):\n{said.strip()}")
    finally:
        for watcher in watchers:
            watcher.kill()
    return {name: file.read_text() for name, file in files.items()}


def summary(name: str, stacks: str, top: int) -> str:
    """The functions by time spent in themselves, and with what they called, in percent of all samples."""
    own, within, total = count(stacks)
    lines = [f"{name}: {total} samples", "   self  within  function"]
    for function, samples in own.most_common(top):
        lines.append(f"{samples / total:7.1%} {within[function] / total:7.1%}  {function}")
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
    head, colon, line = frame.rpartition(":")
    return head + ")" if colon and line.rstrip(")").isdigit() else frame
