"""Keepers of values that one rank each owns: its route, and the memory in which parameters are from then on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.group import LAST_RESORT_S
from volary.comm.sums.owned import Division, owned_sums
from volary.comm.sums.owned_in_memory import OwnedInMemory
from volary.comm.sums.route import Memory
from volary.exchange.gradients.plan import laid_out_as
from volary.exchange.overlap.mixed_routes import MixedRoutes
from volary.exchange.representations import representation_in
from volary.exchange.representations.exact import EXACT
from volary.sharding.groups import leads

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.comm.sums.route import BufferShape, BufferSums, Route
    from volary.comm.topology.topology import Topology
    from volary.exchange.gathering.gathered import GatheredParameters
    from volary.exchange.gradients.bucket import Chunk
    from volary.exchange.gradients.owned import OwnedValues
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import CodedSums, Site

MOST_WAITING = 1  # chunks that wait to leave before backward waits too, where their memory is returned


@dataclass(frozen=True)
class OwnerCopies:
    """Spreads an update of which each rank makes its part: copies of it go to all others, or these gather it.

    first: the number, on the route, of the buffer with the first bucket's parameters. leave: backward is over here;
    all_have_left: wait until it is over everywhere, as parameters may be in memory that all share. landed: called when
    the sums of a chunk are with their owners. most_waiting: chunks that wait to leave before `push` waits; None: any.
    gathered: parameters of which a rank gathers what it is about to use; None: copies go to all.
    """

    first: int
    leave: Callable[[], int]
    all_have_left: Callable[[int], None]
    landed: Callable[[Chunk], None]
    most_waiting: int | None
    gathered: GatheredParameters | None = None


def in_shared_memory(
    group: Group, plans: Sequence[BucketPlan], box: BufferShape, owned: OwnedValues
) -> tuple[BufferSums, OwnerCopies]:
    """In memory that all ranks share, where parameters are once: rank 0's. A collective call. Raises OSError."""
    shapes = [plan.shape for plan in plans]
    divide = _divide(plans, range(len(plans)), owned)
    route = OwnedInMemory(group.bulletin, [*shapes, box], shapes, divide, LAST_RESORT_S)
    _move(plans, route.once, copies=leads(owned.rank))
    route.all_have_left(route.leave())
    return route, OwnerCopies(len(plans) + 1, route.leave, route.all_have_left, _nothing, None)


def around_a_ring(
    plans: Sequence[BucketPlan],
    box: BufferShape,
    topology: Topology,
    site: Site,
    gathered: GatheredParameters | None = None,
) -> tuple[Route, BufferSums, Sequence[CodedSums], OwnerCopies]:
    """Between machines: what carries plain values, the whole route, and what sums encoded gradients.

    gathered: parameters which no copies go around of. A collective call. Raises SettingError.
    """
    owned = site.owned
    assert owned is not None
    exact = [number for number, plan in enumerate(plans) if plan.representation == EXACT]
    copied = plans if gathered is None else ()
    flats = [torch.zeros(plan.shape.numel, dtype=plan.dtype) for plan in copied]
    _move(copied, flats, copies=True)
    memory = [
        *(owned.memory(plans[number]) for number in exact),
        Memory.in_place(box),
        *(Memory(one, one) for one in flats),
    ]
    plain = owned_sums(site.group, memory, topology, _divide(plans, exact, owned), copied_from=len(exact) + 1)
    coded: list[tuple[CodedSums, Sequence[int]]] = []
    for kind in dict.fromkeys(type(plan.representation) for plan in plans if plan.representation != EXACT):
        numbers = [number for number, plan in enumerate(plans) if type(plan.representation) is kind]
        own = [plans[number] for number in numbers]
        coded.append((representation_in(own[0]).sums(own, site.within(kind.__name__)), numbers))
    numbers = [*exact, *range(len(plans), len(plans) + 1 + len(flats))]
    route = MixedRoutes([(plain, numbers), *coded]) if coded else plain

    def landed(chunk: Chunk) -> None:
        owned.landed(chunk, plans[chunk.bucket.index])

    waiting = MOST_WAITING if owned.frees else None
    copies = OwnerCopies(len(plans) + 1, lambda: 0, lambda _: None, landed, waiting, gathered)
    return plain, route, [sums for sums, _ in coded], copies


def _divide(
    plans: Sequence[BucketPlan], summed: Sequence[int], owned: OwnedValues
) -> Callable[[int, int, int], Division]:
    """The division of buffers: of the buckets with numbers `summed`, of the votes, and of each bucket's parameters."""

    @cache  # of the same chunks in every step; each looks at all ranges of its parameters
    def divide(buffer: int, start: int, end: int) -> Division:
        if buffer == len(summed):
            return Division(end - start, [[]] * owned.ranks)
        plan = plans[summed[buffer] if buffer < len(summed) else buffer - len(summed) - 1]
        return owned.division(plan, start, end)

    return divide


@torch.no_grad()
def _move(plans: Sequence[BucketPlan], flats: Sequence[Tensor], *, copies: bool) -> None:
    """Let parameters be in this memory from now on. copies: their values, too; else another rank does."""
    for plan, flat in zip(plans, flats, strict=True):
        for (_, parameter), piece in zip(plan.parameters, plan.pieces(flat)[1], strict=True):
            place = laid_out_as(parameter, piece)
            if copies:
                place.copy_(parameter)
            parameter.data = place


def _nothing(_: Chunk) -> None:
    """Gradients stay where they are."""
