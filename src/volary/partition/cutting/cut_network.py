"""Cuts a network by a plan: each rank is left with its blocks, and layers that know whom to ask for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from volary.comm.groups.layer_group import LayerGroup
from volary.naming import named_modules, named_parameters
from volary.network.blocks.transformer import Block
from volary.partition.cutting.attention import HeadsAttention
from volary.partition.cutting.layers import (
    ColumnEmbedding,
    ColumnLinear,
    RowEmbedding,
    RowLinear,
    SharedDropout,
    become,
)
from volary.partition.cutting.own_draws import OwnDraws
from volary.partition.cutting.read_by_hand import NetworkForward
from volary.partition.cutting.recurrent import UNITS
from volary.sharding.blocks import TensorBlock, cut_evenly

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.partition.cutting.plans import LayerCut, Plan
    from volary.sharding.groups import RankMesh
    from volary.sharding.holdings import Holdings

_KINDS: dict[tuple[type[nn.Module], str], type[nn.Module]] = {
    (nn.Linear, "column"): ColumnLinear,
    (nn.Linear, "row"): RowLinear,
    (nn.Embedding, "column"): ColumnEmbedding,
    (nn.Embedding, "row"): RowEmbedding,
}


def blocks_of(module: nn.Module, cut: LayerCut, mesh: RankMesh) -> Iterator[tuple[TensorBlock, Sequence[int]]]:
    """Yield the blocks of a layer's tensors that are cut, and the ranks that keep each.

    A tensor that layers share has the name that the network gives it first.
    """
    layer = dict(named_modules(module))[cut.layer]
    names = {id(parameter): name for name, parameter in named_parameters(module)}
    if isinstance(layer, nn.MultiheadAttention):
        into = [(one, 0, cut.matrices) for one in (layer.in_proj_weight, layer.in_proj_bias) if one is not None]
        for one, along, matrices in [*into, (layer.out_proj.weight, 1, 1)]:
            blocks = cut_evenly(names[id(one)], one.shape, along, mesh.tensor, matrices, cut.unit)
            yield from zip(blocks, mesh.groups("data", "shard"), strict=True)
        return
    if isinstance(layer, nn.RNNBase):
        for one in layer.parameters():
            blocks = cut_evenly(names[id(one)], one.shape, 0, mesh.tensor, cut.matrices)
            yield from zip(blocks, mesh.groups("data", "shard"), strict=True)
        return
    by_outputs = isinstance(layer, nn.Linear) and cut.how == "column"
    dim = int(not by_outputs) if isinstance(layer, nn.Linear) else int(cut.how == "column")
    cut_tensors = [(layer.weight, dim)]
    if by_outputs and isinstance(layer.bias, nn.Parameter):
        cut_tensors.append((layer.bias, 0))
    for parameter, along in cut_tensors:
        assert isinstance(parameter, nn.Parameter)
        name = names[id(parameter)]
        blocks = cut_evenly(name, parameter.shape, along, mesh.tensor, cut.matrices, cut.unit)
        yield from zip(blocks, mesh.groups("data", "shard"), strict=True)


def cut_network(module: nn.Module, plan: Plan, holdings: Holdings, narrow: str, group: Group) -> LayerGroup:
    """Leave this rank with its blocks of the layers, in place; their parameters stay the same objects.

    narrow: see `LayerGroup`. Returns what its layers communicate in. A collective call of `group`, the ranks that hold
    this replica.
    """
    own = LayerGroup(group, narrow)
    named, layers = dict(named_parameters(module)), dict(named_modules(module))
    ranks = range(own.size)
    sizes = {}
    for cut in plan.cuts:
        block, *_ = [block for block, _ in blocks_of(module, cut, holdings.mesh)]
        everybody = cut_evenly(block.name, block.shape, block.dim, own.size, cut.matrices, cut.unit)
        sizes[cut.layer] = [everybody[rank].own_shape[block.dim] for rank in ranks]
    with torch.no_grad():
        for name, one in holdings.blocks.items():
            named[name].data = one.taken_from(named[name].data)
    within = NetworkForward(module, "tensor", "plan")
    for cut in plan.cuts:
        layer, mine = layers[cut.layer], sizes[cut.layer][own.rank]
        vars(layer).update(within=within, name=cut.layer)
        if isinstance(layer, nn.MultiheadAttention):
            heads = [entries // (cut.matrices * cut.unit) for entries in sizes[cut.layer]]
            draws = OwnDraws(own.rank) if layer.dropout else None
            become(layer, HeadsAttention, group=own, heads=heads, draws=draws)
            continue
        if isinstance(layer, nn.RNNBase):
            units = [entries // cut.matrices for entries in sizes[cut.layer]]
            become(layer, UNITS[type(layer)], group=own, sizes=units)
            continue
        size: dict[str, object] = {"group": own, "sizes": sizes[cut.layer]}
        if isinstance(layer, nn.Linear):
            size |= {"apart": cut.apart, "out_features" if cut.how == "column" else "in_features": mine}
        become(layer, _KINDS[type(layer), cut.how], **size)
    for name, first in plan.dropouts.items():
        become(layers[name], SharedDropout, group=own, sizes=sizes[first])
    for name, attend in plan.heads.items():
        block_layer = layers[name]
        assert isinstance(block_layer, Block)
        unit = next(cut.unit for cut in plan.cuts if cut.layer == attend)
        block_layer.heads = sizes[attend][own.rank] // (3 * unit)
        if block_layer.dropout.p:
            vars(block_layer.attend)["draws"] = vars(block_layer.project)["draws"] = OwnDraws(own.rank)
    return own
