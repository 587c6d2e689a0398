"""What the kernel has booked on a process: CPU time and memory."""

import time
from pathlib import Path

_CPUCLOCK_SCHED = 2


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of `pid` so far, ended ones too, in ns. Raises OSError when it is gone.

    This is the scheduler's own clock of the process (clock_getcpuclockid(3), the clock id is
    `~pid << 3 | CPUCLOCK_SCHED`); utime + stime of /proc/PID/stat is the same in steps of 10 ms.
    """
    return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)


def rss_bytes(pid: int) -> int:
    """Resident memory now."""
    return _status_kib(pid, "VmRSS") * 1024


def peak_rss_bytes(pid: int) -> int:
    """The most that was resident since start or since `forget_peak`."""
    return _status_kib(pid, "VmHWM") * 1024


def forget_peak(pid: int) -> None:
    """Make the present size the peak (proc(5): writing 5 to clear_refs resets VmHWM)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_kib(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise ProcessLookupError(f"process {pid} has no {name}: it has ended")
