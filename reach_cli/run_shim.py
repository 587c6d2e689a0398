"""Between `reach run` and the agent: a tiny process whose only work is that nothing is left behind.

`reach run` holds the other end of a socket. Bytes that come in are numbers of signals for the agent's process
group. When the socket closes, however `reach run` ended, SIGKILL included, the agent and all that it started are
ended. The shim's own exit code is the agent's (128 + n after signal n).

The agent is in a process group of its own, which gets the terminal while `reach run` has it, so that Ctrl-C, job
control and reading from the terminal work as without us. Its descendants, daemonised ones too, are given to the
shim when their parents die (Linux: PR_SET_CHILD_SUBREAPER); if the shim itself is killed, the agent dies with it
(PR_SET_PDEATHSIG) and `reach run` ends the rest of its group.

Run as a file with `python -I -S`, so it starts in 15 ms and imports nothing of ours:
`run_shim.py SOCKET_FD CMD...`
"""

import contextlib
import os
import select
import signal
import socket
import sys
import time

GRACE_S = 2.0  # between the polite and the hard end of what is left over
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STOPPED = b"stopped\n"


def prctl(option: int, value: int) -> None:
    """A Linux process attribute; nothing happens on other systems."""
    if _is_linux():
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants() -> list[int]:
    """Every process below this one (Linux); its own children come first."""
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
                    if fields[0] != b"Z":
                        children.setdefault(int(fields[1]), []).append(int(name))
    found = list(children.get(os.getpid(), []))
    for pid in found:
        found += children.get(pid, [])
    return found


def end_all(group: int) -> None:
    """End the group and every descendant of this process: politely, after GRACE_S hard. Returns when none lives."""
    for hard in (False, True):
        number = signal.SIGKILL if hard else signal.SIGTERM
        deadline = time.monotonic() + GRACE_S
        told: set[int] = set()
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = descendants()
            with contextlib.suppress(OSError):
                if group not in told:
                    told.add(group)
                    os.killpg(group, number)
                    os.killpg(group, signal.SIGCONT)
            for pid in left:
                # A process may be born while we look; each is told once, and hard ones as often as needed.
                if pid not in told or hard:
                    told.add(pid)
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
                        os.kill(pid, signal.SIGCONT)
            # Elsewhere than on Linux only the group can be seen.
            if not left and (_is_linux() or not _is_alive(group)):
                return
            time.sleep(0.01)


def _is_linux() -> bool:
    return sys.platform.startswith("linux")


def _is_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


class Shim:
    """One agent and the socket to `reach run`."""

    def __init__(self, control: socket.socket, command: list[str]) -> None:
        control.set_inheritable(False)  # the agent must not hold it open
        self.control = control
        self.command = command
        self.owner_group = os.getpgrp()
        self.terminal = 0 if _foreground(0) >= 0 else None
        # Under nohup SIGHUP is ignored, and stays so for the agent. SIGPIPE and SIGXFSZ are Python's own doing.
        ours = {signal.SIGPIPE, signal.SIGXFSZ}
        self.ignored = {n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN} - ours
        self.agent = 0
        self.code: int | None = None

    def run(self) -> int:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        os.setpgid(0, 0)
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTTOU, signal.SIGTTIN, signal.SIGTSTP, signal.SIGPIPE, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.start()
        self.tell(f"pid {self.agent}\n".encode())
        while self.code is None:
            readable, _, _ = select.select([self.control, woken], [], [])
            if woken in readable:
                with contextlib.suppress(BlockingIOError):
                    woken.recv(4096)
                self.reap()
            if self.control in readable:
                signals = _received(self.control)
                if not signals:
                    break
                for received in signals:
                    self.forward(received)
        end_all(self.agent)
        self.pass_terminal(self.agent, self.owner_group)
        return 128 + signal.SIGKILL if self.code is None else self.code

    def start(self) -> None:
        shim = os.getpid()
        # Held back until each side of the fork knows who it is: a signal that comes in between ends the agent.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.agent = os.fork()
        if self.agent:
            signal.signal(signal.SIGTERM, lambda *_: self.forward(signal.SIGTERM))
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            with contextlib.suppress(OSError):  # the child does the same; whoever is first
                os.setpgid(self.agent, self.agent)
            self.pass_terminal(self.owner_group, self.agent)
            return
        try:
            os.setpgid(0, 0)
            self.pass_terminal(self.owner_group, os.getpid())
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != shim:
                os._exit(128 + signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            for n in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with contextlib.suppress(OSError, ValueError):
                    signal.signal(n, signal.SIG_IGN if n in self.ignored else signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            os.execvp(self.command[0], self.command)
        except OSError as error:
            os.write(2, f"reach: cannot run {self.command[0]!r}: {error.strerror}.\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)

    def reap(self) -> None:
        """Collect whoever ended; the agent's end is ours.

        An agent that the terminal stopped (Ctrl-Z, or reading in the background) stops `reach run` too, so that
        the shell sees it. One that somebody stopped with SIGSTOP hangs, and its sidecar says so to the mesh.
        """
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if not pid:
                    return
                if pid != self.agent:
                    continue
                if not os.WIFSTOPPED(status):
                    code = os.waitstatus_to_exitcode(status)
                    self.code = code if code >= 0 else 128 - code
                elif self.terminal is not None and os.WSTOPSIG(status) != signal.SIGSTOP:
                    self.pass_terminal(self.agent, self.owner_group)
                    self.tell(STOPPED)

    def forward(self, number: int) -> None:
        if number == signal.SIGCONT:
            self.pass_terminal(self.owner_group, self.agent)
        with contextlib.suppress(OSError):
            os.killpg(self.agent, number)

    def pass_terminal(self, giver: int, taker: int) -> None:
        """Whoever has the terminal in the foreground may pass it on; in the background nobody takes it."""
        if self.terminal is not None and _foreground(self.terminal) == giver:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self.terminal, taker)

    def tell(self, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self.control.sendall(message)


def _foreground(terminal: int) -> int:
    try:
        return os.tcgetpgrp(terminal)
    except OSError:
        return -1


def _received(control: socket.socket) -> bytes:
    try:
        return control.recv(4096)
    except OSError:
        return b""


if __name__ == "__main__":
    sys.exit(Shim(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]).run())
