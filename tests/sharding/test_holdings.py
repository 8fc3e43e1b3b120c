"""The map: every range has keepers and one owner; groups along any axes part the ranks."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as some

from volary.sharding.blocks import TensorBlock
from volary.sharding.groups import Axis, RankMesh, leads
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range
from volary.sharding.samples import SampleShare

AXES: tuple[Axis, ...] = ("data", "shard", "hybrid", "pipeline", "tensor")
meshes = some.builds(RankMesh, *[some.integers(1, 3)] * len(AXES)).filter(lambda mesh: mesh.size <= 54)


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


@given(meshes)
def test_ranks_that_hold_parts_of_one_replica_learn_from_the_same_samples_and_others_from_different_ones(mesh):
    shares = [Holdings(rank, mesh, {}).samples for rank in range(mesh.size)]
    for replica in mesh.groups("pipeline", "tensor"):
        assert len({shares[rank] for rank in replica}) == 1
    for apart in mesh.groups("data", "shard", "hybrid"):
        assert [shares[rank] for rank in apart] == [SampleShare(place, len(apart)) for place in range(len(apart))]


def test_two_tensor_parallel_ranks_of_two_replicas_each_have_half_of_a_batch():
    shares = [RankMesh(data=2, tensor=2).samples(rank) for rank in range(4)]
    assert [list(range(6)[share.of(6, 6)]) for share in shares] == [[0, 2, 4], [0, 2, 4], [1, 3, 5], [1, 3, 5]]
    assert [list(share.run(6, 6)) for share in shares] == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]


@given(some.integers(0, 40), some.integers(1, 6), some.sampled_from([0, 40]))
def test_shares_of_a_batch_are_all_of_it_once_about_equal_and_single_samples_only_if_they_may_be(total, count, whole):
    shares = [SampleShare(number, count) for number in range(count)]
    for cut in ([range(total)[one.of(total, whole)] for one in shares], [one.run(total, whole) for one in shares]):
        assert sorted(place for part in cut for place in part) == list(range(total))
        sizes = [len(part) for part in cut if part]
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
        assert whole == 0 or total < 2 or min(sizes) > 1


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


@given(some.integers(1, 3), some.integers(1, 4), some.dictionaries(some.text(max_size=3), some.integers(1, 9)))
def test_what_is_repeated_is_kept_by_the_same_rank_of_each_replica_and_owned_in_the_first(replicas, ranks, sizes):
    names = [Range(name, 0, size) for name, size in sizes.items()]
    keepers = {part: [number % ranks] for number, part in enumerate(names)}
    block = TensorBlock("block", (2, 2), 0, ((0, 1),))
    views = [
        Holdings(rank, RankMesh(pipeline=ranks), keepers, {block: [ranks - 1]}).repeated(replicas, replica)
        for replica in range(replicas)
        for rank in range(ranks)
    ]
    assert [one.rank for one in views] == list(range(views[0].mesh.size))
    for one in views:
        assert all(one.kept(part) == [part] * (one.rank % ranks == keepers[part][0]) for part in names)
        assert one.owned == [part for part in names if keepers[part] == [one.rank]]
        assert ("block" in one.blocks) == (one.rank % ranks == ranks - 1) and one.together[
            0
        ] == one.rank // ranks * ranks
