"""The map: every range has keepers and one owner; groups along any axes part the ranks."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as some

from volary.sharding.groups import Axis, RankMesh, leads
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range

AXES: tuple[Axis, ...] = ("data", "shard", "pipeline", "tensor")
meshes = some.builds(RankMesh, *[some.integers(1, 3)] * len(AXES))


@given(meshes)
def test_groups_along_any_axes_part_the_ranks_and_meet_those_along_all_others_in_one_rank(mesh):
    for count in range(len(AXES) + 1):
        for axes in combinations(AXES, count):
            groups, across = mesh.groups(*axes), mesh.groups(*set(AXES) - set(axes))
            assert sorted(rank for group in groups for rank in group) == list(range(mesh.size))
            assert len({len(group) for group in groups}) == 1
            assert all(len(set(one) & set(other)) == 1 for one in groups for other in across)


def test_neighbours_are_parts_of_one_layer_before_they_are_anything_else():
    mesh = RankMesh(data=2, tensor=2)
    assert mesh.groups("tensor") == [[0, 1], [2, 3]]
    assert mesh.groups("data") == [[0, 2], [1, 3]]
    assert mesh.groups("data", "tensor") == [[0, 1, 2, 3]]


@given(some.integers(1, 5), some.dictionaries(some.text(max_size=3), some.integers(0, 9)))
def test_replicas_keep_all_and_one_of_them_owns_it_and_acts_for_them(ranks, sizes):
    everything = [Range(name, 0, size) for name, size in sizes.items()]
    views = [Holdings.replicated(sizes, rank, ranks) for rank in range(ranks)]
    assert all(one.kept(part) == [part] for one in views for part in everything if part.size)
    assert [one.owned for one in views] == [everything, *[[]] * (ranks - 1)]
    assert not any(one.in_shares for one in views)
    assert [one.leads for one in views] == [leads(rank) for rank in range(ranks)] == [True, *[False] * (ranks - 1)]


def test_of_shares_that_replicas_keep_the_first_of_these_owns_each():
    mesh, parts = RankMesh(data=2, shard=2), [Range("weight", 0, 3), Range("weight", 3, 7)]
    keepers = dict(zip(parts, mesh.groups("data"), strict=True))
    views = [Holdings(rank, mesh, keepers) for rank in range(mesh.size)]
    whole = Range("weight", 0, 7)
    assert [one.kept(whole) for one in views] == [parts[:1], parts[1:], parts[:1], parts[1:]]
    assert [one.owned for one in views] == [parts[:1], parts[1:], [], []]
    assert all(one.in_shares for one in views)
    middle, around = [Range("weight", 2, 3), Range("weight", 3, 5)], Range("weight", 2, 5)
    assert list(views[0].within(around)) == list(zip(middle, mesh.groups("data"), strict=True))
    assert not list(views[0].within(Range("bias", 0, 5)))
