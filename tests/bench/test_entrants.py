"""Every way of every collective can be measured, and its result is checked."""

from __future__ import annotations

import pytest

from _workers import joined
from volary.bench.entrants import Field
from volary.bench.meeting import BenchRanks
from volary.comm.topology.switch_points import COLLECTIVES
from volary.comm.topology.topology import Topology

LAYOUTS = {"one node": [[0, 1, 2, 3]], "one rank a node": [[0], [1], [2], [3]]}


def try_all(rank: int, world_size: int, layout: str) -> dict[str, list[str]]:
    field = Field(BenchRanks(joined()), Topology.of(*LAYOUTS[layout]))
    for collective in COLLECTIVES:
        for name in field.names(collective):
            for numel in (4, 4000):
                entrant = field.entrant(collective, name, numel)
                entrant.fill()
                entrant.run()
                assert entrant.is_right(), (collective, name, numel)
    return {collective: field.names(collective) for collective in COLLECTIVES}


@pytest.mark.parametrize(
    ("layout", "routes"),
    [
        ("one node", {"torch", "shared", "ring", "tree", "linear"}),
        pytest.param("one rank a node", {"torch", "ring", "tree", "linear"}, marks=pytest.mark.slow),
    ],
)
def test_every_way_gives_the_right_result(workers, layout, routes):
    for names in workers(4, try_all, layout):
        assert set(names.pop("all_reduce")) == routes
        assert names == {
            "broadcast": ["torch", "tree", "chain"],
            "reduce": ["torch", "tree", "chain"],
            "reduce_scatter": ["torch", "direct", "ring"],
            "all_gather": ["torch", "direct", "ring"],
        }


def leave_out_the_run(rank: int, world_size: int) -> list[tuple[str, bool]]:
    field, found = Field(BenchRanks(joined()), Topology.of([0], [1])), []
    for collective in COLLECTIVES:
        entrant = field.entrant(collective, "torch", 4000)
        entrant.fill()
        found.append((collective, entrant.is_right()))
    return found


def test_a_wrong_result_is_seen(workers):
    seen = workers(2, leave_out_the_run)
    for collective, ranks in zip(COLLECTIVES, zip(*seen, strict=True), strict=True):
        assert (collective, False) in ranks
