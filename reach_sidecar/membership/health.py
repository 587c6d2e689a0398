"""Is the local agent fit? Asked every 10 s ± 30 %, and decided here for the whole mesh (design, "Fitness").

A refused connection makes the agent unfit at once: nothing listens there. Failed checks do so when `fail` of
them came in a row: an agent that is stopped or hangs still lets the kernel accept connections, and only its
silence shows it. One success clears it. While it is unfit the checks begin again quickly and slow down to the
interval, so that an agent which was restarted is used again soon.

Only agents on loopback are asked at the interval. One elsewhere is asked until it answers for the first time, since
nobody calls it before, and after a call was refused until it answers again.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Literal

from reach_core.address import is_loopback
from reach_sidecar.membership.controls import EventLog
from reach_sidecar.membership.local import HealthCheck, LocalAgent, host_and_port
from reach_sidecar.membership.supervise import supervise

Result = Literal["passed", "failed", "refused"]

RECHECK_S = (0.2, 0.5, 1.0, 2.0, 4.0)
JITTER = 0.3
AGAIN_S = 2.0
STATUS_LINE_MAX = 1024


class Fitness:
    """The decision, without a clock: results go in, `unfit` and the time to the next check come out."""

    def __init__(self, check: HealthCheck) -> None:
        self.check = check
        self.unfit = False
        self.failures = 0
        self._rechecks = 0

    def saw(self, result: Result) -> None:
        if result == "passed":
            self.unfit, self.failures, self._rechecks = False, 0, 0
            return
        self.failures += 1
        if self.unfit:
            self._rechecks += 1
        elif result == "refused" or self.failures >= self.check.fail:
            self.unfit, self._rechecks = True, 0

    def wait_s(self, chance: float) -> float:
        """Seconds to the next check; `chance` (0…1) spreads the checks of many sidecars."""
        interval_s = self.check.interval_s * (1 - JITTER + 2 * JITTER * chance)
        if self.unfit and self._rechecks < len(RECHECK_S):
            return min(RECHECK_S[self._rechecks], interval_s)
        return interval_s


async def probe(address: str, check: HealthCheck) -> Result:
    """One check: GET of `check.path` answered by 200…399, or a TCP connect where no path is given."""
    host, port = host_and_port(address)
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(check.timeout_s):
            reader, writer = await asyncio.open_connection(host, port, limit=STATUS_LINE_MAX)
            if check.path is None:
                return "passed"
            authority = address.removeprefix("http://")
            writer.write(
                f"GET {check.path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: reach-health\r\n"
                "Accept: */*\r\nConnection: close\r\n\r\n".encode()
            )
            line = await reader.readuntil(b"\n")
    except ConnectionRefusedError:
        return "refused"
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return "failed"
    finally:
        if writer is not None:
            writer.transport.abort()
    version, _, rest = line.partition(b" ")
    good = version.startswith(b"HTTP/1.") and rest[:3].isdigit() and 200 <= int(rest[:3]) < 400
    return "passed" if good else "failed"


class HealthChecks:
    """Runs the checks and sets `local.unfit`. `on_change(unfit, result)` is told each change of mind."""

    def __init__(
        self,
        local: LocalAgent,
        log: EventLog,
        *,
        chance: Callable[[], float] = random.random,
        on_change: Callable[[bool, Result], None] | None = None,
    ) -> None:
        self._local = local
        self._log = log
        self._chance = chance
        self._on_change = on_change
        self._fitness = Fitness(local.health)
        self._asked = (local.address, local.health)
        self._due = 0.0  # on the loop's clock
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._asked_for: asyncio.Task[Result] | None = None
        self._asked_for_at = 0.0

    async def start(self) -> None:
        self._local.changed.append(self._local_changed)
        self._task = asyncio.create_task(supervise("health checks", self._run, self._log), name="health checks")

    async def stop(self) -> None:
        if self._task is not None:
            self._local.changed.remove(self._local_changed)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def report_refused(self) -> None:
        """A call found nobody listening: unfit at once, and asked again in a moment."""
        if not self._fitness.unfit:
            self._saw("refused")
            self._wake.set()

    def check_soon(self) -> None:
        """A call saw its connection break: ask now rather than at the next turn."""
        self._due = 0.0
        self._wake.set()

    async def check_now(self) -> bool:
        """Callers failed, so control wants to know: is the agent fit? One failed check is enough this time. Whoever
        asks while a check runs, or again within `AGAIN_S`, gets the same answer."""
        loop = asyncio.get_running_loop()
        address = self._local.address
        if address is None:
            return True
        if self._asked_for is None or loop.time() - self._asked_for_at > AGAIN_S:
            self._asked_for_at = loop.time()
            self._asked_for = loop.create_task(probe(address, self._local.health), name="health check asked for")
        result = await asyncio.shield(self._asked_for)
        if address == self._local.address:
            self._saw("passed" if result == "passed" else "refused")
            self._wake.set()
        return result == "passed"

    def _local_changed(self) -> None:
        asked = (self._local.address, self._local.health)
        if asked != self._asked:
            self._asked = asked
            was_unfit = self._fitness.unfit
            self._fitness = Fitness(self._local.health)
            self._fitness.unfit = was_unfit
            self._due = 0.0
            self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            address = self._local.address
            wait_s = self._due - loop.time() if address is not None and self._is_asked(address) else None
            if address is not None and wait_s is not None and wait_s <= 0:
                result = await probe(address, self._local.health)
                if address == self._local.address:
                    self._saw(result)
                continue
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _is_asked(self, address: str) -> bool:
        return self._fitness.unfit or not self._local.confirmed or is_loopback(host_and_port(address)[0])

    def _saw(self, result: Result) -> None:
        was_unfit = self._fitness.unfit
        self._fitness.saw(result)
        self._due = asyncio.get_running_loop().time() + self._fitness.wait_s(self._chance())
        if result == "passed":
            self._local.confirm()
        if self._fitness.unfit != was_unfit:
            if self._on_change is not None:
                self._on_change(self._fitness.unfit, result)
            self._local.set_unfit(self._fitness.unfit)
