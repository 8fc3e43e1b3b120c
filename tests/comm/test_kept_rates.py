"""Rates of links are kept for later runs, which check them before they use them."""

from __future__ import annotations

import json
import os

import pytest
from torch import distributed

from _workers import joined
from volary.comm.topology import kept_rates, measuring
from volary.comm.topology.links import Links
from volary.comm.topology.topology import Topology
from volary.run.machine.kept_figures import path_of
from volary.train.member.bulletin import BoardBulletin

PAIR = Topology.of([0], [1])
FOUR = Topology.of([0], [1], [2], [3])
RATES = {(0, 1): 1.5e8}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def known(topology: Topology) -> kept_rates.KeptRates | None:
    return kept_rates.load(BoardBulletin(distributed.HashStore(), 0, 1, 0), topology)


def measure(rank: int, world_size: int, folder: str, alike: float, topology: Topology) -> Topology:
    os.environ["XDG_CACHE_HOME"] = folder
    measuring.ALIKE = alike
    return measuring.measured(Links(joined()), topology)


def test_what_was_measured_is_used_by_later_runs_as_long_as_a_look_shows_the_same(workers, tmp_path):
    measured = workers(2, measure, str(tmp_path), 2.0, PAIR)
    assert measured[0].within_bytes_per_s == known(PAIR).rates[0][2]
    kept_rates.keep(PAIR, RATES, ())
    again = workers(2, measure, str(tmp_path), 1e9, PAIR)  # whatever the look shows counts as the same
    assert [one.within_bytes_per_s for one in again] == [1.5e8, 1.5e8]


def test_links_that_have_become_faster_or_slower_are_measured_anew_and_that_is_kept(workers, tmp_path):
    kept_rates.keep(PAIR, {(0, 1): 1.0}, ())
    measured = workers(2, measure, str(tmp_path), 2.0, PAIR)
    assert measured[0].within_bytes_per_s == measured[1].within_bytes_per_s == known(PAIR).rates[0][2] > 1000


def test_sub_networks_are_kept_with_the_rates_that_showed_them(workers, tmp_path):
    rates = dict.fromkeys([(0, 1), (0, 3), (1, 2), (2, 3)], 1e6) | dict.fromkeys([(0, 2), (1, 3)], 1e7)
    kept_rates.keep(FOUR, rates, ((0, 2), (1, 3)))
    for topology in workers(4, measure, str(tmp_path), 1e9, FOUR):
        assert (topology.subnetworks, topology.source) == (((0, 2), (1, 3)), "measured")
        assert (topology.within_bytes_per_s, topology.between_bytes_per_s) == (1e7, 1e6)


@pytest.mark.parametrize(
    "other",
    [
        Topology.of([0, 2], [1]),
        Topology(PAIR.nodes, ("a", "b"), PAIR.subnetworks, links=PAIR.links),
        Topology(PAIR.nodes, PAIR.hosts, PAIR.subnetworks, links=("10.0.0.1 eth0 1000", "10.0.0.2 eth0 1000")),
        Topology.of([0], [1], subnetworks=[[0], [1]]),
    ],
)
def test_other_hosts_links_ranks_or_descriptions_have_figures_of_their_own(other):
    kept_rates.keep(PAIR, RATES, ())
    assert known(PAIR).rates == ((0, 1, 1.5e8),)
    assert known(other) is None


def test_figures_of_another_version_are_not_used():
    kept_rates.keep(PAIR, RATES, ())
    path = path_of(kept_rates.FILE)
    (entry,) = json.loads(path.read_text()).items()
    path.write_text(json.dumps({entry[0]: entry[1] | {"volary": "0.0.1"}}))
    assert known(PAIR) is None


@pytest.mark.parametrize("text", ["", "[]", '{"here": {"rates": 1}}', "\x00"])
def test_a_damaged_file_is_ignored_and_replaced(text, caplog):
    path_of(kept_rates.FILE).parent.mkdir()
    path_of(kept_rates.FILE).write_text(text)
    assert known(PAIR) is None
    assert "is ignored, as it cannot be read" in caplog.text
    kept_rates.keep(PAIR, RATES, ())
    assert known(PAIR) is not None


def test_where_nothing_can_be_kept_nothing_is_and_that_is_all(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    kept_rates.keep(PAIR, RATES, ())


def test_the_oldest_of_many_sets_of_machines_is_forgotten(monkeypatch):
    monkeypatch.setattr(kept_rates, "MOST_SETS", 2)
    sets = [Topology(PAIR.nodes, (name, "x"), PAIR.subnetworks, links=PAIR.links) for name in "abc"]
    for each in sets:
        kept_rates.keep(each, RATES, ())
    assert [known(each) is not None for each in sets] == [False, True, True]


def test_a_link_is_known_by_address_interface_and_rate():
    assert kept_rates.own_link("127.0.0.1").startswith("127.0.0.1 lo")
    assert kept_rates.own_link("192.0.2.1") == "192.0.2.1"
