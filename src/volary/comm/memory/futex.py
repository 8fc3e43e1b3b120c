"""Waiting in shared memory without spinning: the kernel's futex, by the one call that all its users make."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys

# asm/unistd_64.h. Other processors reorder stores, which plain Python cannot fence: they are left out on purpose.
_CALL = {"x86_64": 202}.get(platform.machine()) if sys.platform == "linux" else None
_WAIT, _WAKE = 0, 1
_EVERYBODY = 2**31 - 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def why_not() -> str:
    """Empty where processes can wait for each other in shared memory, else the sentence that says why they cannot."""
    if _CALL is None:
        return f"waiting in shared memory needs Linux on x86-64; this is {sys.platform} on {platform.machine()}"
    return ""


def wait_while(word: ctypes.c_int32, value: int, timeout_s: float) -> None:
    """Sleep while `word`, in shared memory, holds `value`, up to `timeout_s`; may return early. Raises OSError."""
    timeout = _Timespec(int(timeout_s), int(timeout_s % 1 * 1e9))
    done = _libc.syscall(_CALL, ctypes.byref(word), _WAIT, value, ctypes.byref(timeout), None, 0)
    if done != 0 and (problem := ctypes.get_errno()) not in (errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT):
        raise OSError(problem, os.strerror(problem))


def wake_all(word: ctypes.c_int32) -> None:
    """Wake everybody who waits for `word` to change."""
    _libc.syscall(_CALL, ctypes.byref(word), _WAKE, _EVERYBODY, None, None, 0)


_libc = ctypes.CDLL(None, use_errno=True)
