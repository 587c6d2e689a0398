import subprocess
import sys

import pytest

from bench import accounting

BURN = """
import threading, time
thread = threading.Thread(target=lambda: sum(range(3_000_000)))
thread.start()
thread.join()
print(time.process_time_ns(), flush=True)
input()
"""
GROW = """
memory = b"x" * (64 << 20)
del memory
print("freed", flush=True)
input()
"""


def test_cpu_time_includes_threads_that_have_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        own = int(child.stdout.readline())
        booked = accounting.cpu_ns(child.pid)
        child.communicate("\n")
    assert booked == pytest.approx(own, rel=0.2)
    with pytest.raises(OSError, match="Invalid argument"):
        accounting.cpu_ns(child.pid)


def test_the_peak_outlives_what_was_freed_until_it_is_forgotten() -> None:
    with subprocess.Popen([sys.executable, "-c", GROW], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        idle = accounting.rss_bytes(child.pid)
        assert accounting.peak_rss_bytes(child.pid) - idle > 32 << 20
        accounting.forget_peak(child.pid)
        assert accounting.peak_rss_bytes(child.pid) - idle < 8 << 20
        child.communicate("\n")
