"""The request to the queue beside a run, by options of `volary submit` or in Python; all may be left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from volary.errors import BadInput, SettingError
from volary.jobs.entry import Demand, MemoryFrom
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.run.machine.memory import IMPORTED_BYTES, WORKER_BYTES
from volary.session.values.duration import seconds_of
from volary.session.values.size import Size

RETRIES = 3


@dataclass(frozen=True)
class QueuedDemand:
    """The counted needs of a run. memory_from: how its memory is known. movable, between: as `QueueEntry` has them."""

    demand: Demand
    memory_from: MemoryFrom = "default"
    movable: bool = False
    between: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class QueueRequest:
    """How a run is queued. priority: higher ones start first, and lower ones give way to them. after: runs (names in
    `runs/`, or paths) that are to finish before. cores, gpus: of this machine; default: one for each worker. memory: as
    "8gb"; default: what an earlier run of the session took, else its dry run says, else workers without a network take.
    time: as "2h", within which it ends: it may start earlier then. retries: how often it is tried again when a worker
    or its driver is lost. hold: it waits for release.
    """

    priority: int = 0
    after: Sequence[str | Path] = ()
    cores: int | None = None
    gpus: int | None = None
    memory: str | None = None
    time: str | None = None
    retries: int = RETRIES
    hold: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (("cores", self.cores, 1), ("gpus", self.gpus, 0), ("retries", self.retries, 0)):
            if value is not None and value < least:
                raise BadInput(f"{name} is {value}; accepted: a whole number, {least} or more")
        for name, text, read in (("memory", self.memory, Size.parse), ("time", self.time, seconds_of)):
            try:
                if text is not None:
                    read(text)
            except SettingError as error:
                raise BadInput(f"{name} {error}") from None

    @property
    def time_s(self) -> float | None:
        """The time in which it ends."""
        return None if self.time is None else seconds_of(self.time)

    def demand(self, workers: int, cores_here: int, gpus_each: int) -> Demand:
        """The demand of a run with so many workers on this machine; its memory as asked, or without a network."""
        memory = IMPORTED_BYTES + workers * WORKER_BYTES if self.memory is None else Size.parse(self.memory).count
        cores = max(1, min(workers, cores_here)) if self.cores is None else self.cores
        return Demand(cores, memory, workers * gpus_each if self.gpus is None else self.gpus)

    def runs_before(self) -> tuple[str, ...]:
        """The runs of `after`. Raises RunError if there is no such run, or it will not finish."""
        found = []
        for one in self.after:
            directory = RunDirectory.existing(one)
            with RunReader(directory) as reader:
                state = reader.state()
            if state not in ("queued", "running", "finished"):
                raise BadInput(
                    f"after: {directory.argument} is {state}, and nothing drives it; accepted: a run that is queued, "
                    "running or finished"
                )
            found.append(str(directory.path))
        return tuple(found)
