"""The descendants of a process, which it and they have started: found while it runs, and ended with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

KILLED_WITHIN_S = 5.0  # only a process that hangs in the kernel, on a dead disk, takes longer
LOOK_S = 0.01


def below(pid: int) -> list[object]:
    """All processes below process `pid`; none if it is gone."""
    import psutil  # not needed by `volary --help`

    with suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def end(processes: Sequence[object]) -> None:
    """Kill them, and see them gone."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.kill()  # type: ignore[attr-defined]  # psutil has no types
    deadline = time.monotonic() + KILLED_WITHIN_S
    while any(_runs(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def _runs(process: Any) -> bool:
    """Whether it has not ended; one that has, and whose parent does not ask after it, is listed for ever."""
    import psutil

    with suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
