"""One command as many ranks over all hosts, with the variables that torchrun would give them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from volary.lab.errors import TIME_IS_OVER
from volary.lab.jobs import Job, end_all, wait_any
from volary.lab.network.links import HOST_DEVICE
from volary.lab.network.topology import LabTopology
from volary.lab.timeline import Changeable, Timeline

LOOK_S = 0.25
FAILED_GRACE_S = 2.0  # once one rank failed, the others have no more than this after being asked
_MASTER_PORT = 29500  # every lab has a network to itself: it is free


@dataclass(frozen=True)
class RankPlace:
    """A rank's numbers among all and on its host, and which host that is."""

    rank: int
    world_size: int
    host: int
    local_rank: int
    local_world_size: int

    def environment(self, topology: LabTopology) -> dict[str, str]:
        """The variables that torchrun would set, the device for communication libraries, and the host's address."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "NODE_RANK": str(self.host),
            "GROUP_RANK": str(self.host),
            "MASTER_ADDR": topology.address(0),
            "MASTER_PORT": str(_MASTER_PORT),
            "GLOO_SOCKET_IFNAME": HOST_DEVICE,
            "NCCL_SOCKET_IFNAME": HOST_DEVICE,
            "TP_SOCKET_IFNAME": HOST_DEVICE,
            "VOLARY_LAB_ADDRESS": topology.address(self.host),
            "VOLARY_LAB_HOSTS": " ".join(
                topology.name(rank // self.local_world_size) for rank in range(self.world_size)
            ),
        }


def places(hosts: int, procs: int) -> list[RankPlace]:
    """All places, by rank: the ranks of a host follow each other."""
    world_size = hosts * procs
    return [RankPlace(rank, world_size, rank // procs, rank % procs, procs) for rank in range(world_size)]


@dataclass(frozen=True)
class RanksEnded:
    """How ranks ended. status: 0, that of the rank that failed first, or 124 when the time was over.

    rank: who failed first; None if nobody did. statuses: of each rank, None for those that were ended from outside.
    """

    status: int
    rank: int | None
    statuses: Sequence[int | None]

    def __str__(self) -> str:
        if self.rank is not None:
            return f"rank {self.rank} ended with status {self.status}"
        return "the time was over" if self.status == TIME_IS_OVER else "all ranks ended well"


class Ranks:
    """Ranks that run, as a context: when it is left, those that still run are asked to end, then killed.

    grace_s: how long they have after being asked. linger_s: how long the others may go on by themselves, after one
    failed, to say what they saw.
    """

    def __init__(self, jobs: Sequence[Job], grace_s: float, linger_s: float | None = 0.0) -> None:
        self._jobs, self._grace_s, self._linger_s = jobs, grace_s, linger_s
        self._started = time.monotonic()

    def follow(
        self,
        lab: Changeable,
        timeline: Timeline,
        timeout_s: float | None = None,
        look: Callable[[], bool] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> RanksEnded:
        """Wait for the end, and let the timeline happen meanwhile. say: is told each change.

        look: called every LOOK_S; once a rank failed, True means that nobody has anything to say any more.
        """
        first: int | None = None
        until_s = timeout_s
        while any(job.status is None for job in self._jobs):
            elapsed_s = time.monotonic() - self._started
            for change in timeline.due(elapsed_s):
                change.make(lab)
                (say or _nobody)(str(change))
            if first is None and (first := self._failed()) is not None and self._linger_s is not None:
                until_s = min(elapsed_s + self._linger_s, until_s or float("inf"))
                self._grace_s = min(self._grace_s, FAILED_GRACE_S)
            if until_s is not None and elapsed_s >= until_s:
                break
            bounds = [at_s - elapsed_s for at_s in (timeline.next_s, until_s) if at_s is not None]
            wait_any(
                [job for job in self._jobs if job.status is None],
                min([*bounds, *([LOOK_S] if look else [])], default=None),
            )
            if look is not None and look() and first is not None:
                break
        return self._ended(self._failed() if first is None else first)

    def part(self, look: Callable[[], bool], within_s: float) -> None:
        """Let ranks end that somebody else has asked to, until `look` says that nobody has anything to say any more.

        Ranks that are still there then, or when this is interrupted, have no other grace.
        """
        self._grace_s = 0.0
        deadline = time.monotonic() + within_s
        while running := [job for job in self._jobs if job.status is None]:
            if look() or time.monotonic() > deadline:
                return
            wait_any(running, LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_all(self._jobs, self._grace_s)

    def _failed(self) -> int | None:
        return next((rank for rank, job in enumerate(self._jobs) if job.status), None)

    def _ended(self, first: int | None) -> RanksEnded:
        statuses = [job.status for job in self._jobs]
        if first is not None:
            return RanksEnded(statuses[first] or 0, first, statuses)
        return RanksEnded(TIME_IS_OVER if None in statuses else 0, None, statuses)


def _nobody(_text: str) -> None:
    pass
