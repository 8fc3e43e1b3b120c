"""Cuts the outputs of a network's fully connected layers over workers that have samples of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from volary.comm.groups.layer_group import LayerGroup
from volary.errors import SettingError
from volary.naming import named_modules, named_parameters
from volary.partition.cutting.hybrid_layer import ANY, END, Calls, HybridLinear, Scheme
from volary.partition.cutting.layers import become
from volary.partition.cutting.plans import reached, users_of
from volary.partition.cutting.read_by_hand import NetworkForward
from volary.sharding.blocks import TensorBlock, cut_evenly

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.sharding.holdings import Holdings


def outputs_of(
    module: nn.Module, wanted: Sequence[str] | None, ranks: int
) -> Mapping[str, Sequence[Sequence[TensorBlock]]]:
    """By layer, in the order of the network: of each of its tensors the block of each rank.

    wanted: names; None: all fully connected layers that have outputs for all ranks. Raises SettingError.
    """
    users, names = users_of(module), {id(one): name for name, one in named_parameters(module)}
    linear = {name: part for name, part in reached(module) if type(part) is nn.Linear}
    alone = {name: part for name, part in linear.items() if users[id(part.weight)] == 1}
    if not alone:
        raise SettingError(
            "partition is hybrid, and the network has no fully connected layer with a weight of its own; accepted: "
            "partition=data"
        )
    for name in wanted or ():
        if name not in alone:
            why = "whose weight another layer shares" if name in linear else "which is no fully connected layer of it"
            raise SettingError(f"layers names {name!r}, {why}; accepted: {', '.join(alone)}")
        if alone[name].out_features < ranks:
            raise SettingError(
                f"layers names {name}, which has {alone[name].out_features} outputs for {ranks} workers; accepted: to "
                "leave it out, or fewer workers"
            )
    found: dict[str, Sequence[Sequence[TensorBlock]]] = {}
    for name, layer in alone.items():
        if layer.out_features >= ranks if wanted is None else name in wanted:
            tensors = [one for one in (layer.weight, layer.bias) if isinstance(one, nn.Parameter)]
            found[name] = [cut_evenly(names[id(one)], one.shape, 0, ranks) for one in tensors]
    if not found:
        raise SettingError(
            f"partition is hybrid, and no fully connected layer has outputs for {ranks} workers; accepted: "
            "partition=data, or fewer workers"
        )
    return found


def cut_outputs(
    module: nn.Module, names: Sequence[str], holdings: Holdings, scheme: Scheme, group: Group
) -> LayerGroup:
    """Leave this rank with its outputs of these layers, in place; their parameters stay the same objects.

    Returns what its layers communicate in. A collective call of `group`, the ranks that hold this replica.
    """
    own, layers = LayerGroup(group), dict(named_modules(module))
    named, calls = dict(named_parameters(module)), Calls(own, list(names))
    within = NetworkForward(module, "hybrid", "layers")
    for name in names:
        layer = layers[name]
        assert isinstance(layer, nn.Linear)
        sizes = [block.own_shape[0] for block in cut_evenly(name, layer.weight.shape, 0, own.size)]
        more = {"out_features": sizes[own.rank], "scheme": scheme, "calls": calls, "name": name, "within": within}
        become(layer, HybridLinear, group=own, sizes=sizes, **more)
    with torch.no_grad():
        for name, block in holdings.blocks.items():
            named[name].data = block.taken_from(named[name].data)
    module.register_forward_hook(lambda *_: calls.agree(END) and None)
    return own


def take_part(module: nn.Module, names: Sequence[str]) -> Tensor:
    """Run those layers that others run, without a sample: a scalar 0, whose backward takes part in theirs."""
    layers, given = dict(named_modules(module)), list[Tensor]()
    first = layers[names[0]]
    assert isinstance(first, HybridLinear)
    while (run := first.calls.agree(ANY))[0] != END:
        name, rows, needed = run
        layer = layers[name]
        assert isinstance(layer, HybridLinear)
        nothing = layer.weight.new_empty(0, layer.in_features).requires_grad_(needed)
        if needed and given:
            nothing = nothing + given[-1]  # so backward comes to it in the same order
        given.append(layer.handed_over(nothing, rows, needed=needed).sum())
    return sum(given[1:], given[0]) if given else first.weight[:0].sum()
