"""A timer that epoll can wait for, in microseconds: timerfd(2), which Python offers from 3.13 on."""

import ctypes
import os

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_libc = ctypes.CDLL(None, use_errno=True)


class _Spec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long), ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long), ("first_ns", ctypes.c_long),
    )  # fmt: skip


class Timer:
    """Readable once the time is up. `close` it at the end."""

    def __init__(self) -> None:
        self.descriptor = _libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, after_s: float) -> None:
        """From now on, in place of what was set before; at least a microsecond."""
        whole_s, part_ns = divmod(max(1_000, round(after_s * 1e9)), 1_000_000_000)
        spec = _Spec(0, 0, whole_s, part_ns)
        if _libc.timerfd_settime(self.descriptor, 0, ctypes.byref(spec), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        os.close(self.descriptor)
