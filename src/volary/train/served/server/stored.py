"""The slices that a server keeps: as its network begins, or as a checkpoint has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.server.shards.forms import Forms, SliceShape
from volary.server.shards.slice_store import SliceStore
from volary.server.update_rule import MeanRule, UpdateRule
from volary.train.served.server.rule import BufferRule
from volary.train.served.server.vector_rule import VectorRule
from volary.train.state.optimizer_state import OptimizerState
from volary.train.state.part_state import AVERAGE
from volary.train.state.weights import SavedWeights, weights_of
from volary.train.strategies.averaging.outer_rule import outer_rule
from volary.train.update.optimizer_rule import OptimizerRule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from volary.run.checkpoints import Checkpoints
    from volary.server.protocol.slices import Slice
    from volary.server.protocol.to_members import ServerWelcome
    from volary.server.shards.buffer_pool import Take
    from volary.server.shards.slice_store import Find, Norm
    from volary.train.served.layout import Layout
    from volary.train.served.server.served_network import ServedNetwork
    from volary.train.state.part_state import PartState


def stored(
    network: ServedNetwork,
    slices: Sequence[Slice],
    checkpoints: Checkpoints,
    welcome: ServerWelcome,
    memory: Take | None = None,
) -> SliceStore:
    """The slices as the network begins, or as a checkpoint has them."""
    layout, averaging = network.layout, network.averaging
    own = [one for one in slices if not layout.is_of_buffers(one)]
    buffers = [one for one in slices if layout.is_of_buffers(one)]
    find: Norm | Find | None = None
    if network.vectors is not None:
        rule: UpdateRule = (
            of_vectors := VectorRule({one.number: one.parts for one in own}, network.vectors.at, averaging)
        )
        find = of_vectors.find
    elif (updating := network.updating) is not None:
        whole = not updating.elementwise
        parts = {one.number: {part: layout.trained(part, whole=whole) for part in one.parts} for one in own}
        rule = (optimizers := OptimizerRule(parts, updating, changes_sums=True))
        find = optimizers.norm
    else:
        kept = {one.number: {part: layout.values(part) for part in one.parts} for one in own}
        rule = outer_rule(kept, network.outer, averaging, MeanRule(scaled=not network.centre))
    rules: dict[int, UpdateRule] = dict.fromkeys((one.number for one in own), rule)
    rules |= dict.fromkeys((one.number for one in buffers), BufferRule())
    if welcome.restore is not None:
        path, manifest = checkpoints.path(welcome.restore), checkpoints.manifest(welcome.restore)
        weights = SavedWeights(path, manifest)
        for name, tensor in weights_of(network.module).items():
            if name not in layout.tensors:
                tensor.copy_(weights.whole(name))
        state = OptimizerState.read(path, manifest, network.remembered, averages=averaging is not None)
        _restore(weights, state, layout, slices, rules)
    values = {one.number: torch.cat([layout.values(part) for part in one.parts]) for one in slices}
    forms = Forms({one.number: _shape(layout, one) for one in slices})
    averages = _averages if averaging is not None and averaging.average.evaluate else None
    return SliceStore(forms, values, rules.__getitem__, welcome.applied, memory, find, averages)


def _averages(state: Sequence[PartState]) -> list[Tensor | None]:
    return [one.each.get(AVERAGE) for one in state]


def _restore(
    weights: SavedWeights,
    state: OptimizerState,
    layout: Layout,
    slices: Sequence[Slice],
    rules: Mapping[int, UpdateRule],
) -> None:
    state = state.within(layout.blocks)
    for name, block in layout.blocks.items():
        layout.tensors[name].detach().copy_(weights.block(block))
    for one in slices:
        for part in one.parts:
            if part.name not in layout.blocks:
                layout.values(part).copy_(weights.values(part, layout.tensors[part.name]))
        rules[one.number].restore(one.number, state)


def _shape(layout: Layout, one: Slice) -> SliceShape:
    lengths, widths = [part.size for part in one.parts], [layout.columns(part) for part in one.parts]
    dtype = layout.values(one.parts[0]).dtype
    codec = layout.representations[one.chunk].frames
    return SliceShape(tuple(lengths), tuple(widths), dtype, added=dtype.is_floating_point, codec=codec)
