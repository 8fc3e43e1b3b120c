"""Times each way of each collective over sizes, and finds from which size on which is the fastest."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed

from volary.bench.entrants import COPIES, TORCH, Entrant, Field
from volary.bench.meeting import met
from volary.comm.groups.peers import peers_needed
from volary.comm.memory.shared_memory import available_bytes, machine
from volary.comm.topology import measuring
from volary.comm.topology.links import Links
from volary.comm.topology.switch_points import COLLECTIVES, SwitchPoints, keep
from volary.errors import VolaryError
from volary.placement import Place

if TYPE_CHECKING:
    from volary.bench.meeting import BenchRanks
    from volary.comm.topology.topology import Topology

BACKEND = "gloo"
TIMEOUT_S = 120.0  # of one collective
LEAST_REPEATS, MOST_REPEATS = 3, 41
WAY_SHARE = 1 / 300  # of the time, for one way at one size: five collectives of about four ways have ten sizes
MEMORY_SHARE = 0.5  # of what is available, at most
VALUE_BYTES = 4


@dataclass
class Measured:
    """times: median seconds, the slowest rank's, by collective, size in bytes and way. skipped: why sizes are missing.

    points: of the ways that Volary takes, kept in `file`; None where a collective was not measured at all.
    """

    topology: str
    times: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    points: SwitchPoints | None = None
    file: Path | None = None


def measure(place: Place, sizes: Sequence[int], time_s: float, say: Callable[[str], None]) -> Measured:
    """Be one of the ranks that measure; the same on all of them.

    sizes: in bytes. time_s: no size is begun that would take the whole beyond it. say: is told the progress, on rank
    0. Raises PeerLost, and VolaryError if a way gives a wrong result.
    """
    with met(place, TIMEOUT_S) as ranks:
        where = measuring.find(Links(ranks.group()))
        found = _Measuring(ranks, where, time_s, say if place.leads else _nobody).over(sizes)
        if set(found.times) == set(COLLECTIVES):
            found.points = SwitchPoints.of(_ours(found.times))
    if found.points is not None and place.leads:
        try:
            found.file = keep(where, BACKEND, found.points)
        except OSError as error:
            say(f"the switch points could not be kept: {error}")
    return found


class _Measuring:
    def __init__(self, ranks: BenchRanks, where: Topology, time_s: float, say: Callable[[str], None]) -> None:
        self._where, self._say = where, say
        self._field = Field(ranks, where)
        booted = machine().partition("/")[0]
        # of one memory: the hosts of a lab have one together
        group = ranks.group()
        self._process_group = group.process_group
        self._sharers = group.bulletin.share("booted", booted).count(booted)
        self._world_size = ranks.world_size
        self._way_s = WAY_SHARE * time_s
        self._end = time.monotonic() + time_s

    def over(self, sizes: Sequence[int]) -> Measured:
        found = Measured(str(self._where))
        left = list(COLLECTIVES)
        for size_bytes in sorted(sizes):
            if not self._fits(size_bytes):
                found.skipped.append(f"{size_bytes} bytes and more: they need over half of the available memory")
                break
            for collective in list(left):
                known = found.times.setdefault(collective, {})
                if self._takes_too_long(known, size_bytes):
                    found.skipped.append(f"{collective} of {size_bytes} bytes and more: the time was over")
                    left.remove(collective)
                    continue
                known[size_bytes] = self._compared(collective, size_bytes)
            self._say(f"{size_bytes} bytes: {max(0.0, self._end - time.monotonic()):.0f} s left")
        return found

    def _compared(self, collective: str, size_bytes: int) -> dict[str, float]:
        numel = max(1, size_bytes // VALUE_BYTES // self._world_size) * self._world_size
        times = {}
        for name in self._field.names(collective):
            entrant = self._field.entrant(collective, name, numel)
            times[name] = self._timed(entrant, f"{collective} by {name} of {size_bytes} bytes")
            del entrant
            gc.collect()  # its memory is free before the next is made, also where references go in circles
        return times

    def _timed(self, entrant: Entrant, what: str) -> float:
        entrant.fill()
        first_s = self._slowest([self._once(entrant.run)])[0]
        if self._slowest([0.0 if entrant.is_right() else 1.0])[0]:
            raise VolaryError(f"{what}: the result is wrong on a rank")
        repeats = min(MOST_REPEATS, max(LEAST_REPEATS, int(self._way_s / first_s)))
        return statistics.median(self._slowest([self._once(entrant.run) for _ in range(repeats)]))

    def _takes_too_long(self, known: dict[int, dict[str, float]], size_bytes: int) -> bool:
        """Judge by what the size before took; the first size is always measured."""
        if not known:
            return False
        last = max(known)
        expected_s = sum(known[last].values()) * size_bytes / last * (1 + LEAST_REPEATS)
        return bool(self._slowest([expected_s - (self._end - time.monotonic())])[0] > 0)

    def _fits(self, size_bytes: int) -> bool:
        needed = COPIES * size_bytes * self._sharers
        return bool(self._slowest([needed - MEMORY_SHARE * available_bytes()])[0] <= 0)

    def _once(self, run: Callable[[], None]) -> float:
        with peers_needed():
            distributed.barrier(group=self._process_group)
            begun = time.perf_counter()
            run()
        return time.perf_counter() - begun

    def _slowest(self, values: Sequence[float]) -> list[float]:
        """The largest of each value over all ranks, so that all decide alike."""
        shared = torch.tensor(values, dtype=torch.float64)
        with peers_needed():
            distributed.all_reduce(shared, op=distributed.ReduceOp.MAX, group=self._process_group)
        found: list[float] = shared.tolist()
        return found


def _ours(times: dict[str, dict[int, dict[str, float]]]) -> dict[str, dict[int, dict[str, float]]]:
    """The ways without torch's own, which Volary takes only in place of a route."""
    return {
        collective: {
            size: {way: s for way, s in ways.items() if way != TORCH or collective == "all_reduce"}
            for size, ways in sizes.items()
        }
        for collective, sizes in times.items()
    }


def _nobody(_text: str) -> None:
    """Report nothing: only rank 0 reports."""
