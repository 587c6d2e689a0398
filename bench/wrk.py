"""The closed-loop load: wrk, one thread, keep-alive, 1 KiB POST."""

import json
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.daemon import BenchError

REQUEST_BODY = json.dumps({"task": "x" * 1012})  # 1,024 bytes

# wrk prints rounded text; its script interface hands over exact microseconds.
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '%s'
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\nresult {"calls": %%d, "seconds": %%.6f, "failed": %%d, "broken": %%d, ' ..
    '"p50_us": %%d, "p99_us": %%d, "max_us": %%d}\\n',
    summary.requests, summary.duration / 1e6, e.status, e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(99), latency.max))
end
"""

# Each call gets a key that no other call has, in this run or any other. The request is put together once: a script
# that formats each anew is slower than what it loads.
OWN_KEYS = """
local prefix, count, before, after = '%s-', 0, nil, nil
request = function()
  if before == nil then
    wrk.headers["Idempotency-Key"] = "@@"
    before, after = wrk.format():match("^(.-)@@(.*)$")
  end
  count = count + 1
  return before .. prefix .. count .. after
end
"""


@dataclass(frozen=True)
class Load:
    """What one run of a load did: latencies in ms, `broken` connections and `failed` (not 2xx/3xx) calls."""

    calls: int
    seconds: float
    failed: int
    broken: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @property
    def calls_per_s(self) -> float:
        return self.calls / self.seconds

    def require_clean(self, who: str) -> None:
        if self.failed or self.broken or not self.calls:
            raise BenchError(
                f"{who}: {self.failed} calls failed and {self.broken} connections broke of {self.calls} calls; "
                "a figure taken from that would mean nothing. Look into its log."
            )


def write_script(
    directory: Path, *, name: str = "call", headers: Mapping[str, str] | None = None, own_keys: bool = False
) -> Path:
    """`<name>.lua`, which sends `headers` as well. With `own_keys` it is good for one run only: the next one needs
    other keys."""
    text = SCRIPT % REQUEST_BODY
    text += "".join(f'wrk.headers["{field}"] = "{value}"\n' for field, value in (headers or {}).items())
    if own_keys:
        text += OWN_KEYS % secrets.token_hex(8)
    path = directory / f"{name}.lua"
    path.write_text(text)
    return path


def parse(output: str) -> Load:
    """The `result {...}` line of the script above. Raises BenchError when wrk printed none."""
    for line in output.splitlines():
        if line.startswith("result "):
            found = json.loads(line.removeprefix("result "))
            return Load(
                calls=found["calls"],
                seconds=found["seconds"],
                failed=found["failed"],
                broken=found["broken"],
                p50_ms=found["p50_us"] / 1000,
                p99_ms=found["p99_us"] / 1000,
                max_ms=found["max_us"] / 1000,
            )
    raise BenchError(f"wrk gave no result. It printed:\n{output.strip() or '(nothing)'}")


def run(url: str, connections: int, seconds: float, script: Path) -> Load:
    """Load `url` for whole `seconds`. Raises BenchError when wrk is missing or cannot connect."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise BenchError("wrk is missing: install it with `apt-get install wrk`, then run this again.")
    whole_s = max(1, round(seconds))
    done = subprocess.run(
        [wrk, "-t1", f"-c{connections}", f"-d{whole_s}s", "-s", str(script), url],
        capture_output=True,
        text=True,
        timeout=whole_s + 30,
        check=False,
    )
    return parse(done.stdout + done.stderr)
