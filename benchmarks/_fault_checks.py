"""Traces and results of a run."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import TracebackType

import psutil
from safetensors.numpy import load_file

from volary.run.checkpoints import Checkpoints

MARK = "VOLARY_SCHEDULE"
SHARED_MEMORY = Path("/dev/shm")
GONE_WITHIN_S = 60.0


@dataclass(frozen=True)
class Result:
    """The result of a finished run: its last checkpoint's step and weights, and how many samples it has learnt from."""

    step: int
    weights: str
    samples: int

    def differs(self, expected: Result, *, exact: bool) -> list[str]:
        """Differences from the run that nobody disturbed. exact: weights and steps are promised, too."""
        found = []
        if self.samples != expected.samples:
            found.append(f"learnt from {self.samples} samples, undisturbed from {expected.samples}")
        if exact and self.step != expected.step:
            found.append(f"ended at step {self.step}, undisturbed at {expected.step}")
        if exact and self.weights != expected.weights:
            found.append("weights are not those of an undisturbed run")
        return found


def result_of(folder: Path) -> Result:
    """The result of the finished run in `folder`."""
    checkpoints = Checkpoints(folder / "runs" / "it" / "checkpoints")
    step = checkpoints.steps()[-1]
    newest = checkpoints.path(step)
    weights = hashlib.sha256()
    # by name, not by file: a server that remains writes what two servers wrote
    tensors = [one for file in newest.glob("model*.safetensors") for one in load_file(file).items()]
    for name, tensor in sorted(tensors, key=itemgetter(0)):
        weights.update(name.encode() + tensor.tobytes())
    samples = json.loads((newest / "roster.json").read_bytes())["samples"]
    return Result(step, weights.hexdigest(), samples)


class Traces:
    """The traces of a run in `folder` on the machine: its processes are known by a mark in their environment.

    variables: to be started with.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._temporary = folder, folder / "tmp"
        self._mark = f"{MARK}={secrets.token_hex(8)}"
        self._segments: set[Path] = set()

    def __enter__(self) -> Traces:
        self._temporary.mkdir()
        self._segments = set(SHARED_MEMORY.iterdir())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def variables(self) -> dict[str, str]:
        """The mark, and a folder of its own for temporary files."""
        name, _, value = self._mark.partition("=")
        return {name: value, "TMPDIR": str(self._temporary.resolve())}

    def processes(self) -> list[str]:
        """The processes that run, in words."""
        return [_words(process) for process in self._running()]

    def processes_left(self) -> list[str]:
        """The processes that do not end within a while."""
        until = time.monotonic() + GONE_WITHIN_S
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        return left

    def kill(self) -> None:
        """End what runs."""
        for process in self._running():
            with suppress(psutil.Error):
                process.kill()

    def left(self) -> list[str]:
        """Files and shared memory that nobody uses any more."""
        drafts = [path for path in (self._folder / "runs").rglob(".*") if path.name != ".gitignore"]
        segments = [path for path in set(SHARED_MEMORY.iterdir()) - self._segments if not _is_used(path)]
        kinds = {"temporary files": list(self._temporary.iterdir()), "drafts": drafts, "shared memory": segments}
        return [f"left {kind}: {', '.join(map(str, paths))}" for kind, paths in kinds.items() if paths]

    def _running(self) -> Iterator[psutil.Process]:
        for entry in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError, psutil.Error):
                pid = int(entry.parent.name)
                if self._mark.encode() in entry.read_bytes().split(b"\0") and pid != os.getpid():
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        yield process


def _words(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return f"{process.pid} ({process.status()}: {' '.join(process.cmdline())[-80:]})"
    return f"{process.pid} (gone meanwhile)"


def _is_used(path: Path) -> bool:
    """Whether a process has it open or mapped, so that it may be another program's."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            if str(path) in maps.read_text(errors="replace"):
                return True
    return not path.exists()
