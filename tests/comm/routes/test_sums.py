"""Every route sums every range, of every type, over any nodes; to the same bits on all ranks."""

from __future__ import annotations

import hashlib

import pytest
import torch

from comm.routes._ranks import route, shape
from volary.comm import futex
from volary.comm.topology import Topology

FLAT = ["ring", "tree", "linear"]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NUMEL = 400_003  # several segments, and no number of ranks divides it
RANGES = [(0, NUMEL), (7, 7), (5, 6), (100, 103), (NUMEL - 50_000, NUMEL)]

needs_futex = pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())


def filled(rank: int, turn: int, start: int, end: int) -> torch.Tensor:
    """Whole numbers, few enough that their sums are exact in every type."""
    return (torch.arange(start, end, dtype=torch.int32) * 7 + rank * 3 + turn) % 17


def sums(rank: int, world_size: int, names: list[str], topology: Topology, dtypes: list[torch.dtype]) -> None:
    for life, name in enumerate(names):
        taken = route(name, rank, world_size, [shape(NUMEL, dtype) for dtype in dtypes], topology, life)
        for buffer, dtype in enumerate(dtypes):
            own, agreed = taken.memory[buffer].contribution, taken.memory[buffer].agreed
            for turn, (start, end) in enumerate(RANGES):
                own[start:end] = filled(rank, turn, start, end)
                taken.sum_up(buffer, start, end).wait()
                expected = sum(filled(other, turn, start, end) for other in range(world_size))
                assert torch.equal(agreed[start:end], expected.to(dtype)), (name, dtype, start, end)


@pytest.mark.parametrize("n", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4))])
def test_every_flat_route_sums_every_range_of_every_type(workers, n):
    workers(n, sums, FLAT, Topology.of(*([rank] for rank in range(n))), DTYPES)


@needs_futex
@pytest.mark.parametrize(
    ("names", "topology"),
    [
        (["two_level"], Topology.of([0, 1], [2])),
        (["linear", "two_level", "three_level"], Topology.of([0, 3], [1, 2], subnetworks=[[0], [1]])),
        (["linear", "three_level"], Topology.of([0], [1], [2], [3], subnetworks=[[0, 2], [1, 3]])),
        pytest.param(["two_level"], Topology.of([0, 1, 2]), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_routes_sum_over_nodes_and_sub_networks_of_any_size(workers, names, topology):
    workers(len(topology.order), sums, names, topology, DTYPES[1:3])


def digests(rank: int, world_size: int, names: list[str], topology: Topology) -> list[str]:
    """Of each route's sum of what only rounding to some order can give."""
    found = []
    for life, name in enumerate(names):
        taken = route(name, rank, world_size, [shape(NUMEL)], topology, life)
        for _ in range(2):
            values = torch.randn(NUMEL, generator=torch.Generator().manual_seed(rank))
            taken.memory[0].contribution.copy_(values)
            taken.sum_up(0, 0, NUMEL).wait()
            found.append(hashlib.sha256(taken.memory[0].agreed.numpy().tobytes()).hexdigest())
    return found


@needs_futex
def test_a_sum_has_the_same_bits_on_all_ranks_and_each_time(workers):
    topology = Topology.of([0, 1], [2, 3], subnetworks=[[0], [1]])
    everybody = workers(4, digests, [*FLAT, "two_level", "three_level"], topology)
    assert all(found == everybody[0] for found in everybody)
    assert everybody[0][0::2] == everybody[0][1::2]


def two_at_once(rank: int, world_size: int, names: list[str], topology: Topology) -> None:
    for life, name in enumerate(names):
        taken = route(name, rank, world_size, [shape(NUMEL), shape(NUMEL)], topology, life)
        assert taken.in_flight == 2
        under_way = []
        for turn in range(6):
            buffer, (start, end) = turn % 2, RANGES[0] if turn < 4 else RANGES[4]
            if len(under_way) == taken.in_flight:
                check(taken, world_size, *under_way.pop(0))
            taken.memory[buffer].contribution[start:end] = filled(rank, turn, start, end)
            under_way.append((turn, taken.sum_up(buffer, start, end)))
        for turn, arrival in under_way:
            check(taken, world_size, turn, arrival)


def check(taken, world_size, turn, arrival):
    arrival.wait()
    start, end = RANGES[0] if turn < 4 else RANGES[4]
    expected = sum(filled(other, turn, start, end) for other in range(world_size))
    assert torch.equal(taken.memory[turn % 2].agreed[start:end], expected.float()), turn


@needs_futex
def test_two_sums_may_be_under_way(workers):
    topology = Topology.of([0, 1], [2, 3], subnetworks=[[0], [1]])
    workers(4, two_at_once, [*FLAT, "two_level", "three_level"], topology)


def bytes_sent(rank: int, world_size: int, names: list[str], topology: Topology) -> dict[str, tuple[int, int]]:
    sent = {}
    for life, name in enumerate(names):
        taken = route(name, rank, world_size, [shape(NUMEL)], topology, life)
        taken.sum_up(0, 0, NUMEL).wait()
        sent[name] = (taken.sent_bytes, taken.received_bytes)
    return sent


@needs_futex
def test_what_travels_is_counted_and_is_no_more_than_the_formula(workers):
    topology = Topology.of([0, 1], [2, 3])
    counted = workers(4, bytes_sent, ["ring", "linear", "tree", "two_level"], topology)
    size = 4 * NUMEL

    def total(name: str, ranks: list[int], way: int = 0) -> int:
        return sum(counted[rank][name][way] for rank in ranks)

    for rank in range(4):
        assert total("ring", [rank]) == pytest.approx(size * 2 * 3 / 4, abs=64)
    assert [total("tree", [rank]) / size for rank in range(4)] == [2, 1, 2, 1]
    for node in ([0, 1], [2, 3]):
        assert total("two_level", node) == pytest.approx(size * 2 * 1 / 2, abs=64)
    for name in counted[0]:
        assert total(name, [0, 1, 2, 3]) == total(name, [0, 1, 2, 3], 1)


@needs_futex
def test_larger_nodes_send_no_more_than_the_smallest(workers):
    counted = workers(3, bytes_sent, ["two_level"], Topology.of([0, 1], [2]))
    assert [one["two_level"][0] for one in counted] == [4 * NUMEL, 0, 4 * NUMEL]
