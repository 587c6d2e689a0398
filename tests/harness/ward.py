"""A process that is killed, stopped and started again with the same command: same ports, same state."""

import signal
from collections.abc import Callable

from harness.mesh import Mesh
from harness.process import Process


class Ward:
    """`start()` gives a process that is not awaited yet; `well` is whether it runs and has said that it is ready."""

    def __init__(self, mesh: Mesh, process: Process, restarted: Callable[[], None] | None = None,
                 died: Callable[[], None] | None = None) -> None:
        self._mesh = mesh
        self.process = process
        self.name = process.name
        self._restarted = restarted
        self._died = died

    def kill(self) -> None:
        self.process.kill()
        if self._died is not None:
            self._died()

    def stop(self) -> None:
        self.process.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.signal(signal.SIGCONT)

    def start(self) -> None:
        """Only from the test's main thread: a child dies with the thread that began it (PR_SET_PDEATHSIG)."""
        old = self.process
        self.process = type(old)(old.name, old.command, self._mesh.folder, old.ready_file, self._mesh.env)
        self._mesh.processes.append(self.process)

    def is_back(self) -> bool:
        """Has it said that it is ready? Raises where it has ended instead."""
        ready_file = self.process.ready_file
        assert ready_file is not None
        if ready_file.exists():
            self.process.wait_ready()
            if self._restarted is not None:
                self._restarted()
            return True
        assert self.process.running, f"{self.name} did not start again:\n{self.process.log[-3000:]}"
        return False
