"""What a process has started, and what that has: found while it runs, and ended with it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from volary.engine.processes.processes import KILLED_WITHIN_S


def below(pid: int) -> list[object]:
    """All processes below process `pid`; none if it is gone."""
    import psutil  # type: ignore[import-untyped]  # not needed by `volary --help`

    with suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def end(processes: Sequence[object]) -> None:
    """Kill them, and see them gone."""
    import psutil

    for process in processes:
        with suppress(psutil.Error):
            process.kill()  # type: ignore[attr-defined]  # psutil has no types
    psutil.wait_procs(processes, KILLED_WITHIN_S)
