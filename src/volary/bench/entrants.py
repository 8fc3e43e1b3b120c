"""The ways of a collective, ours and torch's own: each with its memory, its run, and the check of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from volary.comm.collectives import all_gather, broadcast, reduce, reduce_scatter, share
from volary.comm.collectives.all_gather import ALGORITHMS as GATHERING
from volary.comm.collectives.broadcast import ALGORITHMS as BROADCASTING
from volary.comm.collectives.reduce import ALGORITHMS as REDUCING
from volary.comm.collectives.reduce_scatter import ALGORITHMS as SCATTERING
from volary.comm.routes import ROOM
from volary.comm.sums.route import BufferShape
from volary.comm.sums.segments import SharedSum
from volary.comm.topology.links import Links
from volary.comm.topology.route_choice import choose
from volary.errors import SettingError
from volary.sharding.groups import LEADER, leads

if TYPE_CHECKING:
    from torch import Tensor

    from volary.bench.meeting import BenchRanks
    from volary.comm.topology.topology import Topology

TORCH = "torch"  # torch's own collective
SHARED = "shared"  # in place, in the memory that ranks of one machine share
MEETING_TIMEOUT_S = 120.0
COPIES = 3  # of the values, at most, that a way has in memory on each rank
_PARTS, _MARKS = 61, 7
_WAYS: Mapping[str, Mapping[str, Any]] = {
    "broadcast": BROADCASTING,
    "reduce": REDUCING,
    "reduce_scatter": SCATTERING,
    "all_gather": GATHERING,
}


@dataclass(frozen=True)
class Entrant:
    """One way of one collective, for values of one size.

    fill: write this rank's values. run: once; raises PeerLost. is_right: whether that left what it must.
    """

    fill: Callable[[], None]
    run: Callable[[], None]
    is_right: Callable[[], bool]


class Field:
    """The entrants that compete. All ranks use it alike; rank 0 is the root of collectives that have one."""

    def __init__(self, ranks: BenchRanks, topology: Topology) -> None:
        self._ranks, self._topology = ranks, topology
        self._rank, self._world_size = ranks.rank, ranks.world_size
        self._links = Links(ranks.group())
        self._process_group = self._links.group.process_group

    def names(self, collective: str) -> list[str]:
        """The ways of a collective, torch's own first."""
        if collective == "all_reduce":
            shared = [SHARED] if len(self._topology.nodes) == 1 else []
            return [TORCH, *shared, *(name for name in ROOM.names() if name != TORCH and self._can_be_taken(name))]
        return [TORCH, *_WAYS[collective]]

    def entrant(self, collective: str, name: str, numel: int) -> Entrant:
        """A way of a collective, for `numel` values of float32: a multiple of the ranks."""
        if collective == "all_reduce" and name != TORCH:
            return self._shared(numel) if name == SHARED else self._routed(name, numel)
        values = torch.zeros(numel)
        make: Callable[[Tensor, str], Entrant] = getattr(self, f"_{collective}")
        return make(values, name)

    def _can_be_taken(self, route: str) -> bool:
        try:
            choose(route, self._topology, [_shape(1)])
        except SettingError:
            return False
        return True

    def _shared(self, numel: int) -> Entrant:
        memory = SharedSum(self._ranks.group().bulletin, [_shape(numel)], MEETING_TIMEOUT_S)
        return Entrant(
            lambda: self._fill(memory.mine(0)),
            memory.sum_up,
            lambda: self._holds_sum(memory.boards[0].agreed),
        )

    def _routed(self, name: str, numel: int) -> Entrant:
        route = ROOM.load(name)().build(self._ranks.group(), [_shape(numel)], self._topology)
        memory = route.memory[0]
        return Entrant(
            lambda: self._fill(memory.contribution),
            lambda: route.sum_up(0, 0, numel).wait(),
            lambda: self._holds_sum(memory.agreed),
        )

    def _all_reduce(self, values: Tensor, _torch: str) -> Entrant:
        def run() -> None:
            distributed.all_reduce(values, group=self._process_group)

        return Entrant(lambda: self._fill(values), run, lambda: self._holds_sum(values))

    def _broadcast(self, values: Tensor, name: str) -> Entrant:
        def run() -> None:
            if name == TORCH:
                distributed.broadcast(values, group=self._process_group, group_src=0)
            else:
                broadcast(self._links, values, 0, self._topology, name)

        return Entrant(lambda: self._fill(values), run, lambda: self._holds(values))

    def _reduce(self, values: Tensor, name: str) -> Entrant:
        def run() -> None:
            if name == TORCH:
                distributed.reduce(values, group=self._process_group, group_dst=LEADER)
            else:
                reduce(self._links, values, LEADER, self._topology, name)

        return Entrant(lambda: self._fill(values), run, lambda: not leads(self._rank) or self._holds_sum(values))

    def _reduce_scatter(self, values: Tensor, name: str) -> Entrant:
        own = share(values.numel(), self._rank, self._world_size)
        found = torch.empty_like(values[own]) if name == TORCH else values[own]

        def run() -> None:
            if name == TORCH:
                _torchs("reduce_scatter_single", "reduce_scatter_tensor")(found, values, group=self._process_group)
            else:
                reduce_scatter(self._links, values, self._topology, name)

        return Entrant(lambda: self._fill(values), run, lambda: self._holds_sum(found, owner=self._rank))

    def _all_gather(self, values: Tensor, name: str) -> Entrant:
        own = values[share(values.numel(), self._rank, self._world_size)]
        apart = torch.empty_like(own) if name == TORCH else own  # torch's takes what it sends from elsewhere

        def fill() -> None:
            values.zero_()
            for part, mark in _parts(apart, self._rank):
                part.fill_(mark)

        def run() -> None:
            if name == TORCH:
                _torchs("all_gather_single", "all_gather_into_tensor")(values, apart, group=self._process_group)
            else:
                all_gather(self._links, values, self._topology, name)

        return Entrant(fill, run, lambda: self._holds(values))

    def _fill(self, values: Tensor) -> None:
        """Whole numbers that tell ranks, shares and places apart, and are summed exactly."""
        for part, mark in self._all_parts(values):
            part.fill_(mark + self._rank)

    def _holds(self, values: Tensor) -> bool:
        """A tensor that rank 0 fills in."""
        return all(bool((part == mark).all()) for part, mark in self._all_parts(values))

    def _holds_sum(self, values: Tensor, owner: int | None = None) -> bool:
        """The sum of what all fill in. owner: `values` are this rank's share; None: they are all shares."""
        n = self._world_size
        parts = self._all_parts(values) if owner is None else _parts(values, owner)
        return all(bool((part == n * mark + n * (n - 1) // 2).all()) for part, mark in parts)

    def _all_parts(self, values: Tensor) -> Iterator[tuple[Tensor, int]]:
        for owner in range(self._world_size):
            yield from _parts(values[share(values.numel(), owner, self._world_size)], owner)


def _parts(one_share: Tensor, owner: int) -> Iterator[tuple[Tensor, int]]:
    """Parts of a rank's share, each with a number of its own."""
    size = max(1, one_share.numel() // _PARTS)
    for number, start in enumerate(range(0, one_share.numel(), size)):
        yield one_share[start : start + size], (number + owner) % _MARKS


def _shape(numel: int) -> BufferShape:
    return BufferShape(numel, torch.float32, torch.device("cpu"))


def _torchs(name: str, formerly: str) -> Callable[..., Any]:
    """Torch's function: the older name warns in newer versions, which do not have it for ever."""
    found: Callable[..., Any] = getattr(distributed, name, None) or getattr(distributed, formerly)
    return found
