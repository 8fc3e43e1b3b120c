"""Rates of links that a group of a run has measured hold for the groups that follow when its members change."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from torch.distributed import HashStore

from _workers import joined
from volary.comm.topology import kept_rates, measuring, run_rates, tournament
from volary.comm.topology.links import Links
from volary.comm.topology.topology import Topology
from volary.train.member.bulletin import BoardBulletin

FOUR = Topology.of([0], [1], [2], [3])
RATES = dict.fromkeys([(0, 1), (0, 3), (1, 2), (2, 3)], 1e6) | dict.fromkeys([(0, 2), (1, 3)], 1e7)
GROUPS = ((0, 2), (1, 3))
PROBE = tournament.PROBE_BYTES


@pytest.fixture
def board():
    return BoardBulletin(HashStore(), 0, 1, 0)


def named(*hosts: str) -> Topology:
    nodes = Topology.of(*([rank] for rank in range(len(hosts))))
    return replace(nodes, hosts=hosts, links=hosts)


def measure(rank: int, world_size: int, folder: str, *topologies: Topology) -> list[tuple[Topology, int]]:
    """Each topology as the next group of the run finds it, and the bytes that this rank has sent for that."""
    os.environ["XDG_CACHE_HOME"] = folder
    tournament.BUDGET_S = measuring.BUDGET_S = 1e-9  # whatever a probe takes is long: it is the figure
    found = []
    for number, topology in enumerate(topologies):
        links = Links(joined(number))
        found.append((measuring.measured(links, topology), links.sent_bytes))
    return found


def test_links_that_were_measured_are_not_measured_again_by_who_is_left(workers, tmp_path):
    three, two = named("a", "b", "c"), named("c", "a")
    results = workers(3, measure, str(tmp_path), three, three, two)
    for found in results:
        (first, sent), (again, sent_again), (left, sent_by_left) = found
        assert (sent, sent_again, sent_by_left) == (2 * PROBE, 0, 0)  # two games each
        assert again == first
        assert left.within_bytes_per_s >= first.within_bytes_per_s > 0
    assert len({found[2][0].within_bytes_per_s for found in results}) == 1


def test_of_a_node_that_joins_its_own_links_alone_are_measured(workers, tmp_path):
    results = workers(3, measure, str(tmp_path), named("a", "b"), named("a", "b", "c"))
    assert [[sent for _, sent in found] for found in results] == [[PROBE, PROBE], [PROBE, PROBE], [0, 2 * PROBE]]
    assert results[0][1][0].within_bytes_per_s <= results[0][0][0].within_bytes_per_s
    assert results[0][1][0] == results[1][1][0] == results[2][1][0]


def measure_with_groups(rank: int, world_size: int, folder: str) -> list[tuple[Topology, int]]:
    if rank == 0:
        run_rates.note(joined().bulletin, named("a", "b", "c", "d"), RATES, GROUPS)
    joined().bulletin.share("noted", True)
    return measure(rank, world_size, folder, named("b", "d", "c", "a"), named("a", "b", "c", "d", "e"))


def test_where_sub_networks_have_shown_all_play_again_once_a_node_joins(workers, tmp_path):
    for rank, ((known, sent), (_, sent_with_fifth)) in enumerate(workers(5, measure_with_groups, str(tmp_path))):
        assert (known.subnetworks, known.source, sent) == (((0, 1), (2, 3)), "measured", 0)
        assert sent_with_fifth >= 4 * PROBE, rank


def test_a_look_that_took_as_long_as_measuring_is_what_counts(workers, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pair = named("a", "b")
    kept_rates.keep(pair, {(0, 1): 1.0}, ())
    for ((found, sent),) in workers(2, measure, str(tmp_path), pair):
        assert found.within_bytes_per_s > 1000
        assert sent == PROBE


def test_sub_networks_are_those_of_the_nodes_that_are_left(board):
    run_rates.note(board, FOUR, RATES, GROUPS)
    assert run_rates.load(board, FOUR) == (RATES, GROUPS)
    rates, groups = run_rates.load(board, Topology.of([0], [1], [2]))
    assert rates == {pair: rate for pair, rate in RATES.items() if 3 not in pair}
    assert groups == ()  # one of them would have one node


def test_a_node_is_known_again_whatever_its_place_and_number_of_ranks(board):
    run_rates.note(board, named("a", "b", "c"), {(0, 1): 1.0, (0, 2): 2.0, (1, 2): 3.0}, ())
    again = replace(Topology.of([0], [1, 2], [3]), hosts=("c", "a", "b"), links=("c", "a", "b"))
    assert run_rates.load(board, again)[0] == {(0, 1): 2.0, (0, 2): 3.0, (1, 2): 1.0}
    assert run_rates.load(board, replace(again, links=("c", "a", "other"))) == ({(0, 1): 2.0}, ())


def test_nodes_that_look_alike_are_told_apart(board):
    run_rates.note(board, named("a", "a"), {(0, 1): 5.0}, ())
    assert run_rates.load(board, named("a", "a"))[0] == {(0, 1): 5.0}
    assert run_rates.load(board, named("a", "b"))[0] == {}


def test_what_is_known_of_members_that_are_gone_is_forgotten_first(board, monkeypatch):
    monkeypatch.setattr(run_rates, "MOST_LINKS", 2)
    for hosts in (("a", "b"), ("c", "d"), ("e", "f")):
        run_rates.note(board, named(*hosts), {(0, 1): 1.0}, ())
    assert [bool(run_rates.load(board, named(*hosts))[0]) for hosts in ("ab", "cd", "ef")] == [False, True, True]
