"""One `reach run` from its start to its end: the sidecar in this process, the agent as its child.

The sidecar comes first and goes last, so that the agent's first and last calls work.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from reach_cli.failure import Failed
from reach_cli.run_agent import AgentProcess, forward_signals
from reach_cli.run_control import ensure_control
from reach_cli.run_directory import forget, note
from reach_cli.run_environment import agent_environment
from reach_cli.run_plan import Plan
from reach_os.ports import PortError
from reach_os.state_dir import StateDirError
from reach_sidecar.app import InsecureListener, Sidecar

PORT_POLL_S = 0.05
# How long the agent's start may wait for the table, so that its first call does not meet an empty one.
TABLE_WAIT_S = 3.0
PORT_HINT_AFTER_S = 15.0
CONTROL_CHECK_S = 5.0
# What a stop may take beyond `drain.grace`, which is for the calls: leaving, flushing the log.
STOP_SLACK_S = 10.0
SIDECAR_LOG = "sidecar.log"
LOG_SIZE = 16 << 20
# The third Ctrl-C (or SIGTERM) in a row means it.
INSISTED = 3

Say = Callable[[str], None]


@contextmanager
def quiet_stderr(log: Path | None) -> Iterator[TextIO]:
    """The terminal's stderr as a stream, while descriptor 2 (where the sidecar logs) goes to the file `log`.

    So the agent's own output is not drowned. None leaves everything as it is.
    """
    if log is None:
        yield sys.stderr
        return
    terminal = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    sys.stderr.flush()
    os.dup2(file, 2)
    os.close(file)
    stream = os.fdopen(os.dup(terminal), "w", buffering=1)
    try:
        yield stream
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)
        stream.close()


class Session:
    def __init__(self, plan: Plan, command: Sequence[str], terminal: TextIO, say: Say) -> None:
        self.plan = plan
        self.command = command
        self.terminal = terminal
        self.say = say
        self.agent: AgentProcess | None = None
        self.sidecar: Sidecar | None = None
        self.insisted = 0
        self.stopping: asyncio.Future[None] | None = None
        self.told_to_stop: asyncio.Event | None = None

    async def run(self) -> int:
        """The exit code of the agent. Raises Failed if the sidecar cannot start."""
        self.told_to_stop = asyncio.Event()
        forward_signals(self._on_signal)
        addresses = await self._start_sidecar()
        written = self._note(addresses)
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._wait_for_table()
            if self.told_to_stop.is_set():
                return 128 + signal.SIGTERM
            env = agent_environment(
                os.environ, outbound=addresses["outbound"], admin=addresses["admin"], port=self.plan.port
            )
            self.agent = AgentProcess(self.command, env, self.terminal.fileno())
            tasks = [
                asyncio.create_task(self._announce(addresses)),
                asyncio.create_task(self._keep_control()),
            ]
            return await self.agent.ended
        finally:
            for task in tasks:
                task.cancel()
            if self.agent is not None and not self.agent.ended.done():
                await self.agent.end()
            if written is not None:
                forget(written)
            await self._stop_sidecar()

    async def _start_sidecar(self) -> Mapping[str, str]:
        sidecar = Sidecar(self.plan.config, state=self.plan.state)
        try:
            addresses = await sidecar.start()
        except PortError as error:
            raise Failed(f"{error} Or let --auto-ports find a free one.") from None
        except (StateDirError, InsecureListener) as error:
            raise Failed(str(error)) from None
        self.sidecar = sidecar
        return addresses

    async def _wait_for_table(self) -> None:
        """Until control has answered since our start: a table from the disk may lack who came meanwhile."""
        assert self.sidecar is not None
        assert self.told_to_stop is not None
        began = time.monotonic()
        while (now := time.monotonic()) - began < TABLE_WAIT_S and not self.told_to_stop.is_set():
            age_s = self.sidecar.membership.table_age_s(now)
            if age_s is not None and age_s < now - began:
                return
            await asyncio.sleep(PORT_POLL_S / 2)

    async def _stop_sidecar(self) -> None:
        """Calls under way have `drain.grace` as in every sidecar, unless somebody insists on the end."""
        if self.sidecar is not None and self.insisted < INSISTED:
            self.stopping = asyncio.ensure_future(self.sidecar.stop())
            with suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self.stopping, self.plan.config.drain.grace + STOP_SLACK_S)

    def _on_signal(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            self.insisted += 1
            assert self.told_to_stop is not None
            self.told_to_stop.set()
            if self.sidecar is not None:
                self.sidecar.local.set_draining(True)
                self.sidecar.local.closing = True  # the agent is told to end: there is nothing to wait for
        if self.stopping is not None and self.insisted >= INSISTED:
            self.stopping.cancel()
        if self.agent is not None:
            self.agent.forward(signal.SIGKILL if self.insisted >= INSISTED else number)

    def _note(self, addresses: Mapping[str, str]) -> Path | None:
        try:
            return note("sidecar", self.plan.agent_id, {"pid": os.getpid(), **addresses})
        except OSError as error:
            self.say(f"other verbs will not find this sidecar by themselves and need --admin: {error}")
            return None

    async def _announce(self, addresses: Mapping[str, str]) -> None:
        """Say where things are, once the agent listens; a hint if it does not for long."""
        port, began, hinted = self.plan.port, asyncio.get_running_loop().time(), False
        while not await _accepts(port):
            await asyncio.sleep(PORT_POLL_S)
            if not hinted and asyncio.get_running_loop().time() - began > PORT_HINT_AFTER_S:
                hinted = True
                self.say(
                    f"{self.plan.agent_id} does not listen on port {port} yet, so nobody can call it. Make it listen "
                    "on $PORT, or say with --port where it does. (It can call others already.)"
                )
        name, target = self.plan.agent_id, f"@{self.plan.agent_id}"
        if self.sidecar is not None:
            self.sidecar.health.check_soon()
            local = self.sidecar.local  # an agent may have registered itself, under a name of its own
            name = local.agent_id
            target = local.declared[0].name if local.declared else f"@{name}"
        self.say(f"{name} is ready on port {port}; calls go to http://{addresses['outbound']}")
        self.say(f"""try: curl http://{addresses["outbound"]}/to/{target} -d '{{"task": "hello"}}'""")

    async def _keep_control(self) -> None:
        """Start a control node again should the one on this machine have gone; keep the log file small."""
        while True:
            await asyncio.sleep(CONTROL_CHECK_S)
            try:
                if started := await asyncio.to_thread(ensure_control, self.plan.config.control):
                    self.say(f"the control node was gone; started another at {started}")
            except Failed as failure:
                self.say(failure.message)
            with suppress(OSError):
                written, ours = os.fstat(2), os.stat(self.plan.state.path / SIDECAR_LOG)
                # With --verbose descriptor 2 is the user's, perhaps a file of theirs.
                if written.st_size > LOG_SIZE and os.path.samestat(written, ours):
                    os.ftruncate(2, 0)


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
