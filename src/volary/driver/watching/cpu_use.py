"""Finds which processes of this machine have used a processor since the last look: a stopped one has not."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress


class CpuUse:
    """Compares the processor time of processes, by number, with what they had used when they were first looked at."""

    def __init__(self) -> None:
        self._used_s: dict[int, float] = {}

    def working(self, pids: Mapping[int, int]) -> set[int]:
        """The numbers of those that have used a processor since the last look, or wait for one."""
        import psutil  # not needed by `volary --help`

        found = set()
        for number, pid in pids.items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                times = process.cpu_times()
                used_s = times.user + times.system
                if used_s > self._used_s.get(pid, used_s) or process.status() == psutil.STATUS_RUNNING:
                    found.add(number)
                self._used_s[pid] = used_s
        # one that has beaten again is compared anew the next time
        self._used_s = {pid: self._used_s[pid] for pid in pids.values() if pid in self._used_s}
        return found
