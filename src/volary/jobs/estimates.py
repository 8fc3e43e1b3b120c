"""Estimates of memory for runs that wait: from other runs of their session, and from dry runs meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from volary.jobs.entry import MemoryFrom, QueueEntry
from volary.jobs.memory import ESTIMATES, FILE, KnownMemory, session_key
from volary.run.directory import RunDirectory
from volary.run.machine.kept_figures import path_of

CHECK = "from volary.run.launch.parent import die_with_parent as d; d(); from volary.cli import main; main()"
NICENESS = 10  # of a dry run: a tenth of what a run gets of a core that both want; at 19 it would take hours there


class MemoryEstimates:
    """Estimates the memory of a queue's runs. environment: the variables with which a run was submitted."""

    def __init__(self, environment: Callable[[str], Mapping[str, str]]) -> None:
        self._environment = environment
        self._trial: subprocess.Popen[bytes] | None = None
        self._trial_of = ""
        self._tried = set[str]()  # keys of sessions
        self._keys: dict[str, str] = {}  # their keys by run, of those that wait
        self._kept_as: object = None

    def learnt(self, entries: Sequence[QueueEntry], most: int) -> dict[str, tuple[int, MemoryFrom]]:
        """The bytes that waiting runs are known to take by now, where that is news. most: what the machine has.

        While others run, the dry run of the first whose memory is not known is begun.
        """
        waiting = [one for one in entries if one.state == "waiting" and one.memory_from in ("default", "estimate")]
        runs, kept_as = {one.run for one in waiting}, _kept_as()
        fresh = runs if kept_as != self._kept_as else runs - self._keys.keys()
        self._keys = {run: self._keys[run] if run in self._keys else _key(run) for run in runs}
        self._kept_as = kept_as
        known = KnownMemory.now() if fresh else KnownMemory({}, {})
        found = {run: news for run in fresh if (news := known.of(self._keys[run], most)) is not None}
        if len(waiting) < len(entries):
            unknown = [one for one in waiting if one.run not in found and one.memory_from == "default"]
            self._try_first([one for one in unknown if not one.held and self._keys[one.run]])
        return found

    def close(self) -> None:
        """End the dry run that is under way."""
        if self._trial is not None and self._trial.poll() is None:
            os.killpg(self._trial.pid, signal.SIGKILL)  # it writes nothing but the estimate, whole
            self._trial.wait()
        self._trial = None

    def _try_first(self, entries: Sequence[QueueEntry]) -> None:
        if self._trial is not None and self._trial.poll() is None:
            if self._trial_of in self._keys.values():
                return
            self.close()  # nobody waits any more of whom it would say something
        for entry in entries:
            if self._keys[entry.run] not in self._tried:
                self._trial_of = self._keys[entry.run]
                self._tried.add(self._trial_of)
                self._try(entry)
                return

    def _try(self, entry: QueueEntry) -> None:
        session = str(RunDirectory(entry.run).session)
        ours = {"OMP_NUM_THREADS": "1", "VOLARY_DRIVER": str(os.getpid())}
        variables = dict(self._environment(entry.run) or os.environ) | ours
        with suppress(OSError):  # its folder has gone: its driver will say so
            self._trial = subprocess.Popen(
                [entry.python, "-c", CHECK, "check", session, "run.name=null", *entry.overrides],
                cwd=entry.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            os.setpriority(os.PRIO_PROCESS, self._trial.pid, NICENESS)


def _key(run: str) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return session_key(RunDirectory(run).session.read_text(encoding="utf-8"))
    return ""


def _kept_as() -> object:
    """Differs once something else is kept."""
    found = []
    for file in (FILE, ESTIMATES):
        with suppress(OSError):
            status = path_of(file).stat()
            found.append((file, status.st_ino, status.st_mtime_ns))
    return found
