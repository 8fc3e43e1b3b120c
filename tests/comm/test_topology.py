"""Which ranks share a node, which nodes a sub-network: found, measured, described; and the route that follows."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from _workers import joined
from comm.routes._ranks import shape
from volary.comm.memory import futex
from volary.comm.sums.route import BufferShape
from volary.comm.topology.links import Links
from volary.comm.topology.measuring import find, measured
from volary.comm.topology.route_choice import choose
from volary.comm.topology.topology import Topology, described
from volary.comm.topology.tournament import rounds, subnetworks, tournament
from volary.errors import SettingError

ALONE = Topology.of([0], [1], [2], [3])
NODES = Topology.of([0, 1], [2, 3])
GROUPS = Topology.of([0], [1], [2], [3], subnetworks=[[0, 2], [1, 3]])
ONE = Topology.of([0, 1])


def test_a_topology_says_what_it_is_in_a_sentence():
    assert str(ONE) == "1 node of 2 ranks"
    assert str(Topology.of([0, 1], [2], [3, 4])) == "2 nodes of 2 ranks and 1 node of 1 rank"
    assert "2 sub-networks (node0+node2, node1+node3; given)" in str(GROUPS)


def test_ranks_are_ordered_by_sub_network_and_node():
    topology = Topology.of([0, 3], [1], [2, 4], subnetworks=[[0, 2], [1]])
    assert topology.order == (0, 3, 2, 4, 1)
    assert topology.leaders == [0, 1, 2]
    assert [topology.node_of(rank) for rank in range(5)] == [0, 1, 2, 0, 2]
    assert topology.place_of(2) == (0, 1)
    assert not topology.equal_subnetworks


def find_here(rank: int, world_size: int) -> Topology:
    return find(Links(joined()))


@pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())
def test_ranks_that_can_share_memory_are_one_node(workers):
    found = workers(3, find_here)
    assert found[0].nodes == ((0, 1, 2),)
    assert found[0] == found[1] == found[2]


def play(rank: int, world_size: int) -> tuple[dict, Topology]:
    links = Links(joined())
    topology = Topology.of([0, 4], [1], [2], [3])
    return tournament(links, topology.leaders), measured(links, topology)


def test_all_ranks_hear_the_same_rate_of_every_pair(workers):
    results = workers(5, play)
    rates, topology = results[0]
    assert set(rates) == set(combinations(range(4), 2))
    assert min(rates.values()) > 0
    assert topology.within_bytes_per_s
    assert all(result == results[0] for result in results)


def refused_here(rank: int, world_size: int, path) -> str:
    with pytest.raises(SettingError) as refused:
        find(Links(joined()), path)
    return str(refused.value)


def test_a_description_that_does_not_fit_is_refused_on_all_ranks(workers, tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text("subnetworks: [[nowhere]]")
    said = workers(2, refused_here, path)
    assert said[0] == said[1]
    assert "hosts that have no worker: nowhere" in said[0]


@pytest.mark.parametrize("players", range(2, 9))
def test_every_pair_meets_once_and_nobody_plays_twice_at_a_time(players):
    games = rounds(players)
    assert sorted(pair for game in games for pair in game) == list(combinations(range(players), 2))
    for game in games:
        busy = [player for pair in game for player in pair]
        assert len(busy) == len(set(busy))
        assert len(busy) >= players - 1


def rates(nodes: int, fast: list[set[int]], inside: float = 100.0, across: float = 20.0) -> dict:
    return {
        pair: inside if any(set(pair) <= group for group in fast) else across for pair in combinations(range(nodes), 2)
    }


def test_groups_of_fast_pairs_are_sub_networks():
    assert subnetworks(rates(4, [{0, 1}, {2, 3}]), 4) == ((0, 1), (2, 3))
    assert subnetworks(rates(6, [{0, 2, 4}, {1, 3, 5}]), 6) == ((0, 2, 4), (1, 3, 5))
    assert subnetworks(rates(5, [{0, 1}, {2, 3, 4}]), 5) == ((0, 1), (2, 3, 4))


@pytest.mark.parametrize(
    ("why", "found", "nodes"),
    [
        ("all are alike", rates(4, [{0, 1, 2, 3}]), 4),
        ("the difference is not clear", rates(4, [{0, 1}, {2, 3}], across=50.0), 4),
        ("one host is slow towards all", rates(4, [{0, 1, 2}]), 4),
        ("fast pairs overlap", rates(4, [{0, 1}, {1, 2}, {2, 3}]), 4),
        ("there is one pair", rates(2, []), 2),
    ],
)
def test_anything_else_is_one_network(why, found, nodes):
    assert subnetworks(found, nodes) == ()


def test_sub_networks_are_read_from_a_file_by_the_names_of_hosts(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text("subnetworks:\n  - [a, c]\n  - [b, d]\n")
    assert described(path, ["a", "b", "c", "d"]) == ((0, 2), (1, 3))
    assert described(path, ["a", "a", "b", "c", "d"]) == ((0, 1, 3), (2, 4))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("subnetworks: [[a], [b, x]]", "names hosts that have no worker: x; accepted: each of a, b once"),
        ("subnetworks: [[a]]", "leaves out b; accepted: each of a, b once"),
        ("subnetworks: [[a, b], [a]]", "names twice a"),
        ("subnetworks: [a, b]", "accepted: `subnetworks:` and under it a list of lists of host names"),
        ("groups: [[a, b]]", "accepted: `subnetworks:`"),
        ("[", "cannot be read"),
        ("subnetworks: !!python/name:os.system [[a]]", "cannot be read|accepted"),
    ],
)
def test_a_description_that_does_not_fit_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "net.yaml"
    path.write_text(text)
    with pytest.raises(SettingError, match=sentence):
        described(path, ["a", "b"])


def test_a_description_that_is_missing_is_refused(tmp_path):
    with pytest.raises(SettingError, match="cannot be read"):
        described(tmp_path / "none.yaml", ["a"])


@pytest.mark.parametrize(
    ("topology", "preferred", "name", "reason"),
    [
        (Topology.of([0]), None, "torch", "nobody to sum with"),
        (ONE, "ring", "shared", "all 2 workers are on one machine"),
        (NODES, "ring", "two_level", "2 nodes of 2 ranks"),
        (GROUPS, "ring", "three_level", "2 sub-networks"),
        (ALONE, None, "torch", "a machine of its own"),
        (ALONE, "ring", "ring", "measured to be the fastest"),
    ],
    ids=str,
)
def test_the_route_follows_from_the_topology_and_says_why(topology, preferred, name, reason):
    chosen, why = choose("auto", topology, [shape(10)], preferred)
    assert chosen == name
    assert reason in why


def test_a_route_that_was_set_is_taken_where_it_can_be():
    for name in ("torch", "ring", "tree", "linear", "two_level"):
        assert choose(name, NODES, [shape(10)], "ring")[0] == name
    assert choose("three_level", GROUPS, [shape(10)])[0] == "three_level"


@pytest.mark.parametrize(
    ("wanted", "topology", "sentence"),
    [
        ("two_level", ALONE, "several workers on one of them.*nearest: torch"),
        ("two_level", ONE, "several nodes.*nearest: shared"),
        ("three_level", NODES, "sub-networks of as many nodes each.*nearest: two_level"),
    ],
)
def test_a_route_that_cannot_be_taken_is_refused_with_the_nearest(wanted, topology, sentence):
    with pytest.raises(SettingError, match=sentence):
        choose(wanted, topology, [shape(10)])


def test_values_on_an_accelerator_go_by_torch():
    there = [BufferShape(10, torch.float32, torch.device("cuda"))]
    assert choose("auto", NODES, there)[0] == "torch"
    with pytest.raises(SettingError, match="parameters are on cuda; nearest: torch"):
        choose("ring", NODES, there)
