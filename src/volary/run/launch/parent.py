"""A process that must not outlive what started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from volary.errors import BadInput

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """End with what started this process, even if that is killed. Linux; elsewhere a lost connection ends it.

    Raises BadInput if it has gone already.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    driver = os.environ.get("VOLARY_DRIVER")
    if driver is not None and os.getppid() != int(driver):
        raise BadInput("what started this process is gone")


def outlive_parent() -> None:
    """Let this process end in order after its parent, not with it; from the thread that called `die_with_parent`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
