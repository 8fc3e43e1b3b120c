"""A process that writes its own log, as nobody else does."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

VERDICT_BELOW = "--- why this worker ended ---"  # a line of its own, below what the user's code has printed


def print_into(log: Path) -> None:
    """Let everything that this process prints go to its log."""
    with log.open("ab") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            os.dup2(file.fileno(), stream.fileno())


def by_line() -> None:
    """Let what this process prints be in its log as soon as a line is whole: others follow it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
