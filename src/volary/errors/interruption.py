"""Ctrl-C and SIGTERM while a command begins: a KeyboardInterrupt, but never in the middle of an import.

Nobody can say how one ends there: the compiler makes a SyntaxError of it if it falls into an import of its
own, and what is raised while a module's lock is let go is printed, and lost.
"""

from __future__ import annotations

import signal
import sys
import time
from types import FrameType

AT_MOST_S = 10.0  # an import that takes longer is interrupted: it runs code of the user's that may never end


def raise_when_interrupted() -> None:
    """Let SIGTERM raise KeyboardInterrupt as Ctrl-C does, both once an import is over. For the main thread."""
    signal.signal(signal.SIGTERM, _interrupted)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored here
        signal.signal(signal.SIGINT, _interrupted)


def _interrupted(_number: int, frame: FrameType | None) -> None:
    importing, until = _outermost_import(frame), time.monotonic() + AT_MOST_S
    if importing is None or sys.getprofile() is not None:  # the second time it does not wait
        raise KeyboardInterrupt

    def look(frame: FrameType, event: str, _: object) -> None:
        if (frame is importing and event == "return") or time.monotonic() > until:
            sys.setprofile(None)
            raise KeyboardInterrupt

    sys.setprofile(look)


def _outermost_import(frame: FrameType | None) -> FrameType | None:
    found = None
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            found = frame
        frame = frame.f_back
    return found
