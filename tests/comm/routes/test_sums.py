"""Every route sums every range, of every type, over any nodes; to the same bits on all ranks."""

from __future__ import annotations

import hashlib

import pytest
import torch

from _workers import joined
from comm.routes._ranks import route, shape
from volary.comm.memory import futex
from volary.comm.routes import ROOM
from volary.comm.topology.topology import Topology

PLUGINS = {name: ROOM.load(name)() for name in ROOM.names()}
FLAT = [name for name, one in PLUGINS.items() if not one.levels]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
NUMEL = 400_003  # several segments, and no number of ranks divides it
RANGES = [(0, NUMEL), (7, 7), (5, 6), (100, 103), (NUMEL - 50_000, NUMEL)]

needs_futex = pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())


def filled(rank: int, turn: int, start: int, end: int) -> torch.Tensor:
    """Whole numbers, few enough that their sums are exact in every type."""
    return (torch.arange(start, end, dtype=torch.int32) * 7 + rank * 3 + turn) % 17


def sums(rank: int, world_size: int, names: list[str], topology: Topology, dtypes: list[torch.dtype]) -> None:
    for attempt_id, name in enumerate(names):
        taken = route(name, joined(attempt_id), [shape(NUMEL, dtype) for dtype in dtypes], topology)
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


NODES, SUBNETWORKS = Topology.of([0, 1], [2]), Topology.of([0, 3], [1, 2], subnetworks=[[0], [1]])
SPREAD = Topology.of([0], [1], [2], [3], subnetworks=[[0, 2], [1, 3]])


def possible(topology: Topology) -> list[str]:
    return [name for name, one in PLUGINS.items() if not one.refusal(topology)]


@needs_futex
@pytest.mark.parametrize("topology", [NODES, SUBNETWORKS, SPREAD], ids=str)
def test_routes_sum_over_nodes_and_sub_networks_of_any_size(workers, topology):
    names = possible(topology)
    assert any(PLUGINS[name].levels for name in names)
    workers(len(topology.order), sums, names, topology, DTYPES[1:3])


@pytest.mark.parametrize("name", PLUGINS)
def test_every_route_can_be_taken_somewhere_and_says_where_not_in_a_sentence(name):
    topologies = [Topology.of([0], [1]), Topology.of([0, 1]), NODES, SUBNETWORKS, SPREAD]
    refusals = [PLUGINS[name].refusal(topology) for topology in topologies]
    assert "" in refusals
    assert all(len(said.split()) > 4 and not said.endswith(".") for said in refusals if said)
    assert not PLUGINS[name].preference or any(refusals), "what auto prefers has a condition"


def test_one_route_can_be_taken_anywhere():
    anywhere = [one for one in PLUGINS.values() if one.anywhere]
    assert len(anywhere) == 1 and not any(anywhere[0].refusal(one) for one in (NODES, SPREAD, Topology.of([0])))


def digests(rank: int, world_size: int, names: list[str], topology: Topology) -> list[str]:
    """Digests of each route's sum of what only rounding to some order can give."""
    found = []
    for attempt_id, name in enumerate(names):
        taken = route(name, joined(attempt_id), [shape(NUMEL)], topology)
        for _ in range(2):
            values = torch.randn(NUMEL, generator=torch.Generator().manual_seed(rank))
            taken.memory[0].contribution.copy_(values)
            taken.sum_up(0, 0, NUMEL).wait()
            found.append(hashlib.sha256(taken.memory[0].agreed.numpy().tobytes()).hexdigest())
    return found


@needs_futex
def test_a_sum_has_the_same_bits_on_all_ranks_and_each_time(workers):
    topology = Topology.of([0, 1], [2, 3], subnetworks=[[0], [1]])
    everybody = workers(4, digests, possible(topology), topology)
    assert all(found == everybody[0] for found in everybody)
    assert everybody[0][0::2] == everybody[0][1::2]


def two_at_once(rank: int, world_size: int, names: list[str], topology: Topology) -> None:
    for attempt_id, name in enumerate(names):
        taken = route(name, joined(attempt_id), [shape(NUMEL), shape(NUMEL)], topology)
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
    workers(4, two_at_once, possible(topology), topology)


def bytes_sent(rank: int, world_size: int, names: list[str], topology: Topology) -> dict[str, tuple[int, int]]:
    sent = {}
    for attempt_id, name in enumerate(names):
        taken = route(name, joined(attempt_id), [shape(NUMEL)], topology)
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
