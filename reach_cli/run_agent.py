"""The agent as the child of `reach run`, with the shim between them (see run_shim)."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from reach_cli import run_shim

# What is passed on to the agent's process group. SIGKILL and SIGSTOP cannot be caught: the shim sees to those.
FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGWINCH,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)


class AgentProcess:
    """A started agent. `ended` is set to its exit code, 128 + n after signal n."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], stderr: int | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._shim = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(run_shim.__file__)), str(theirs.fileno()), *command],
                pass_fds=(theirs.fileno(),),
                env=dict(env),
                stderr=stderr,
            )
        ours.setblocking(False)
        self._socket = ours
        self._heard = b""
        self.pid: int | None = None
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)

    def forward(self, number: int) -> None:
        """Send a signal to the agent's process group."""
        with suppress(OSError):
            self._socket.send(bytes([number]))

    async def end(self) -> int:
        """End the agent and all it started, politely and then hard; its exit code."""
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        await asyncio.to_thread(self._shim.wait)
        self._settle()
        return await self.ended

    def _hear(self) -> None:
        try:
            data = self._socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._shim.wait()
            self._settle()
            return
        self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            if line.startswith(b"pid "):
                self.pid = int(line[4:])
            elif line + b"\n" == run_shim.STOPPED:
                # Ctrl-Z: the shell that waits for us must see us stop too. `fg` continues us, and we the agent.
                os.kill(os.getpid(), signal.SIGSTOP)

    def _settle(self) -> None:
        code = self._shim.returncode
        if code < 0 and self.pid is not None:
            # The shim itself was killed. The agent died with it; this ends what is left of its group.
            with suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        if not self.ended.done():
            self.ended.set_result(code if code >= 0 else 128 - code)


def forward_signals(handle: Callable[[int], None]) -> None:
    """Have `handle` called for each forwarded signal, except those that whoever started us wants ignored (nohup)."""
    loop = asyncio.get_running_loop()
    for number in FORWARDED:
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, handle, number)
