"""Sums that come to their owners alone, around a ring and in shared memory; and copies of what owners have."""

from __future__ import annotations

import pytest
import torch

from _workers import joined
from volary.comm.sums.owned import Division, owned_sums
from volary.comm.sums.owned_in_memory import OwnedInMemory
from volary.comm.sums.route import BufferShape, Memory, Route
from volary.comm.topology.topology import Topology

HEAD, VALUES = 16, 50_000


def division(buffer: int, start: int, end: int) -> Division:
    """Whole numbers of values go by turns to rank 1 and rank 0, nothing to others; but for the head."""
    head = min(HEAD - start, end - start) if start < HEAD else 0
    middle = head + (end - start - head) // 3
    return Division(head, [[(middle, end - start)], [(head, middle)], [], []])


def contribution(rank: int, step: int) -> torch.Tensor:
    return torch.randn(VALUES, generator=torch.Generator().manual_seed(100 * step + rank))


def summed(rank: int, world_size: int, how: str) -> list[list[bool]]:
    """Say of steps whether head and own values are the sums, and whether then all have what owners made of them."""
    shape, group = BufferShape(VALUES, torch.float32, torch.device("cpu")), joined()
    if how == "ring":
        memory = [Memory.in_place(shape), Memory.in_place(shape)]
        sums: Route = owned_sums(group, memory, Topology.of(range(world_size)), division, copied_from=1)
    else:
        shared = sums = OwnedInMemory(group.bulletin, [shape], [shape], division, timeout_s=30.0)
        memory = sums.memory
    found, (gradients, parameters) = [], memory
    for step in range(3):
        gradients.contribution.copy_(contribution(rank, step))
        ranges = [(0, 20_000), (20_000, VALUES)]
        under_way = [sums.sum_up(0, *one) for one in ranges]
        for arrival in under_way:
            arrival.wait()
        total = sum(contribution(other, step) for other in range(world_size))
        head = gradients.agreed[:HEAD] if gradients.head is None else gradients.head
        right = [torch.allclose(head, total[:HEAD], atol=1e-5)]
        for start, end in ranges:
            for low, high in division(0, start, end).owned[rank]:
                own = slice(start + low, start + high)
                right.append(torch.allclose(gradients.agreed[own], total[own], atol=1e-5))
                parameters.agreed[own] = gradients.agreed[own]
        for arrival in [sums.sum_up(1, *one) for one in ranges]:
            arrival.wait()
        right.append(torch.allclose(parameters.agreed[HEAD:], total[HEAD:], atol=1e-5))
        found.append(right)
        if how == "memory":
            shared.all_have_left(shared.leave())  # nobody writes what another still compares
    assert how == "memory" or world_size > 2 or sums.sent_bytes < 3 * 4 * 1.01 * (VALUES + HEAD)
    return found


@pytest.mark.parametrize("how", ["ring", "memory"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_each_owner_has_the_sums_of_its_values_and_all_get_what_it_makes_of_them(workers, world_size, how):
    for found in workers(world_size, summed, how):
        assert len(found) == 3 and all(map(all, found)), found
