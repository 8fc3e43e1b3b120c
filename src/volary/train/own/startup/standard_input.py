"""Standard input of the command that starts a program on this machine: rank 0 of the run reads it."""

from __future__ import annotations

import contextlib
import os

DRIVER = "VOLARY_DRIVER"  # in the environment of what engine `local` starts: the process id of its driver


def read_as_the_driver() -> None:
    """Have the driver's standard input as this process's own, where it can be had; else there is nothing to read."""
    if driver := os.environ.get(DRIVER):
        with contextlib.suppress(OSError):  # it has none, or a socket
            file = os.open(f"/proc/{driver}/fd/0", os.O_RDONLY | os.O_NOCTTY)  # its terminal stays its own
            os.dup2(file, 0)
            os.close(file)
