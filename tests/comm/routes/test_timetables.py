"""Timetables, driven without a network: all end with the sum, nobody waits crosswise, links carry what is said."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from volary.comm.routes import linear, three_level, tree
from volary.comm.sums.hops import LEAST_BYTES, SEGMENT_BYTES, Hop, around, pieces
from volary.comm.topology.topology import Topology

VALUE_BYTES = 8192  # large, so that few values make many segments

Loads = Counter[tuple[int, int]]  # values from one rank to another


def drive(timetables: Sequence[Sequence[Hop]], numel: int) -> Loads:
    """Run all ranks until none can go on, one after the other as far as each gets; check the sums."""
    ranks = range(len(timetables))
    values = [[(rank + 1) * 1000 + at for at in range(numel)] for rank in ranks]
    sums = [sum(column) for column in zip(*values, strict=True)]
    wire: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
    todo = [deque(hops) for hops in timetables]
    loads: Loads = Counter()

    def step(rank: int) -> bool:
        hop = todo[rank][0]
        coming = wire[hop.source, rank, hop.flow] if hop.source is not None else deque([[]])
        if not coming:
            return False
        todo[rank].popleft()
        came, here = coming.popleft(), values[rank][hop.start : hop.end]
        if hop.source is not None:
            assert len(came) == len(here), (rank, hop)
            values[rank][hop.start : hop.end] = [a + b for a, b in zip(here, came, strict=True)] if hop.add else came
        if hop.to is not None:
            wire[rank, hop.to, hop.flow].append(values[rank][hop.start : hop.end])
            loads[rank, hop.to] += hop.end - hop.start
        return True

    while any(todo[rank] and step(rank) for rank in ranks):
        pass
    assert not any(todo), "ranks wait for each other"
    assert not any(wire.values()), "something was sent that nobody takes"
    assert values == [sums] * len(values)
    return loads


def ring_hops(topology: Topology, rank: int, numel: int) -> list[Hop]:
    order = topology.order
    return list(around(order, order.index(rank), 0, numel, VALUE_BYTES, first=True))


def tree_hops(topology: Topology, rank: int, numel: int) -> list[Hop]:
    order = topology.order
    return list(tree.hops(order, order.index(rank), numel, VALUE_BYTES))


def linear_hops(topology: Topology, rank: int, numel: int) -> list[Hop]:
    return linear.hops(linear.lines(topology), rank, numel, VALUE_BYTES)


def three_level_hops(topology: Topology, rank: int, numel: int) -> list[Hop]:
    group, place = topology.place_of(topology.node_of(rank))
    near = [topology.nodes[node][0] for node in topology.subnetworks[group]]
    far = [topology.nodes[nodes[place]][0] for nodes in topology.subnetworks]
    return list(three_level.hops(near, place, far, group, 0, numel, VALUE_BYTES))


def alone(n: int, subnetworks: Sequence[Sequence[int]] = ()) -> Topology:
    return Topology.of(*([rank] for rank in range(n)), subnetworks=subnetworks)


def loads_of(hops: Callable[[Topology, int, int], list[Hop]], topology: Topology, numel: int) -> Loads:
    return drive([hops(topology, rank, numel) for rank in sorted(topology.order)], numel)


TOPOLOGIES = [
    *(alone(n) for n in range(1, 10)),
    alone(6, [[0, 2, 4], [1, 3, 5]]),
    alone(7, [[0, 1, 2], [3, 4, 5, 6]]),
    Topology.of([0, 1, 4], [2, 3], [5], [6, 7]),
    Topology.of([0, 1], [2, 3], [4, 5], [6, 7], subnetworks=[[0, 3], [1, 2]]),
    Topology.of([0, 1, 2, 3, 4]),
]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=str)
@pytest.mark.parametrize("hops", [ring_hops, tree_hops, linear_hops])
def test_every_rank_ends_with_the_sum_whatever_the_topology(hops, topology):
    for numel in (0, 1, 3, 1000):
        loads_of(hops, topology, numel)


@pytest.mark.parametrize(("groups", "each"), [(2, 1), (2, 2), (2, 3), (3, 2), (4, 2)])
def test_three_levels_sum_over_sub_networks_and_spare_the_trunk(groups, each):
    topology = alone(groups * each, [range(at, at + each) for at in range(0, groups * each, each)])
    for numel in (0, 1, 5, 3000):
        loads = loads_of(three_level_hops, topology, numel)
        leaves = sum(count for (a, b), count in loads.items() if a < each <= b)
        assert leaves == pytest.approx(2 * (groups - 1) / groups * numel, abs=each * numel / 100 + groups * each)


@pytest.mark.parametrize("hops", [ring_hops, linear_hops])
def test_ring_and_lines_send_the_least_that_an_all_reduce_can(hops):
    for n in range(2, 10):
        loads = loads_of(hops, alone(n), 840)
        for rank in range(n):
            sent = sum(count for (source, _), count in loads.items() if source == rank)
            assert sent == pytest.approx(840 * 2 * (n - 1) / n, abs=n)


@pytest.mark.parametrize("n", [2, 4, 6, 8, 10])
def test_no_link_carries_two_parts_in_one_direction(n):
    steps = [pair for line in linear.lines(alone(n)) for pair in pairwise(line)]
    there_and_back = Counter(steps + [(b, a) for a, b in steps])
    assert there_and_back == Counter((a, b) for a in range(n) for b in range(n) if a != b)


@pytest.mark.parametrize("n", [3, 5, 7, 9])
def test_an_odd_number_of_ranks_uses_each_link_twice(n):
    steps = [frozenset(pair) for line in linear.lines(alone(n)) for pair in pairwise(line)]
    assert set(Counter(steps).values()) == {2}


def test_lines_cross_a_trunk_once_where_a_ring_sends_more():
    topology = alone(4, [[0, 1], [2, 3]])

    def across(hops):
        return sum(count for (a, b), count in loads_of(hops, topology, 1200).items() if a < 2 <= b)

    assert (across(linear_hops), across(ring_hops)) == (1200, 1800)


def test_lines_pass_through_a_node_and_leave_it_once():
    topology = Topology.of([0, 3], [1, 4], [2, 5])
    for line in linear.lines(topology):
        nodes = [topology.node_of(rank) for rank in line]
        assert sum(a != b for a, b in pairwise(nodes)) == 2


def test_a_tree_is_as_deep_as_the_logarithm_of_its_ranks():
    def depth(place: int) -> int:
        parent, _ = tree.family(16, place)
        return 0 if parent is None else 1 + depth(parent)

    assert max(depth(place) for place in range(16)) == 4
    assert tree.family(6, 0) == (None, [1, 2, 4])
    assert tree.family(6, 4) == (0, [5])


@pytest.mark.parametrize("size_bytes", [0, 2, LEAST_BYTES, SEGMENT_BYTES, 3 * SEGMENT_BYTES + 2])
def test_segments_are_of_a_size_and_hold_all_values(size_bytes):
    found = pieces(10, 10 + size_bytes // 2, 2)
    assert [value for low, high in found for value in range(low, high)] == list(range(10, 10 + size_bytes // 2))
    assert all(2 * (high - low) <= SEGMENT_BYTES for low, high in found)
