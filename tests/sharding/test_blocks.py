"""Blocks of tensors: rows or columns, of one matrix or of several in one tensor."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as some

from volary.sharding.blocks import TensorBlock, cut_evenly
from volary.sharding.groups import RankMesh
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range


@given(some.lists(some.integers(1, 6), min_size=1, max_size=3), some.data())
def test_blocks_of_all_ranks_are_the_tensor_each_value_once(shape, data):
    dim = data.draw(some.integers(0, len(shape) - 1))
    matrices, unit = data.draw(some.integers(1, 3)), data.draw(some.integers(1, 3))
    shape[dim] *= matrices * unit
    ranks = data.draw(some.integers(1, 5))
    whole = torch.arange(torch.Size(shape).numel()).view(shape)
    blocks = cut_evenly("weight", shape, dim, ranks, matrices, unit)
    made = torch.full_like(whole, -1)
    for block in blocks:
        values = block.taken_from(whole)
        assert values.shape == block.own_shape and values.numel() == block.size and values.is_contiguous()
        assert all((end - start) % unit == 0 for start, end in block.spans) and len(block.spans) == matrices
        block.put_into(made, values)
    assert len(blocks) == ranks and sum(block.size for block in blocks) == whole.numel() and made.equal(whole)
    sizes = [sum(end - start for start, end in block.spans) for block in blocks]
    assert max(sizes) - min(sizes) <= unit * matrices


def test_the_map_says_who_has_and_writes_which_block():
    mesh = RankMesh(data=2, tensor=2)
    blocks = cut_evenly("weight", (5, 3), 0, 2)
    cut = dict(zip(blocks, mesh.groups("data"), strict=True))
    views = [Holdings(rank, mesh, {Range("bias", 0, 5): range(4)}, cut) for rank in range(4)]
    assert [one.blocks["weight"] for one in views] == [*blocks, *blocks]
    assert [one.writes for one in views] == [blocks[:1], blocks[1:], [], []]
    assert [one.writes_uncut for one in views] == [True, False, False, False]
    assert [one.draws_as for one in views] == [0, 0, 2, 2]
    assert all(one.apart and not one.in_shares for one in views)
    assert views[0].kept_share == (5 + 6) / 20 and views[1].kept_share == (5 + 9) / 20
    assert blocks[0] == TensorBlock("weight", (5, 3), 0, ((0, 2),))
