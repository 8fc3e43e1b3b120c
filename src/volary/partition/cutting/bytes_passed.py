"""How many bytes a worker passes to others between parts of layers, in a step; as `LayerGroup` counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import nn

from volary.naming import named_modules

if TYPE_CHECKING:
    from volary.partition._base import LayerUse
    from volary.partition.cutting.plans import LayerCut, Plan

NARROW_BYTES = 2


def passed_by_tensor(
    module: nn.Module, plan: Plan, ranks: int, narrow: bool, uses: Mapping[str, LayerUse], samples: float
) -> float:
    """The bytes of layers that are cut by `plan` among so many ranks, of which each has all `samples` of a step.

    narrow: values pass in 16 bits.
    """
    layers, width = dict(named_modules(module)), next(module.parameters()).element_size()
    used = [(cut, layers[cut.layer], uses[cut.layer]) for cut in plan.cuts if cut.layer in uses]
    values = sum(_of_cut(cut, layer, use, ranks) for cut, layer, use in used)
    return samples * values * (min(width, NARROW_BYTES) if narrow else width)


def rounds_by_tensor(module: nn.Module, plan: Plan, uses: Mapping[str, LayerUse]) -> int:
    """The messages of such layers that follow each other in a step."""
    layers = dict(named_modules(module))
    return sum(_rounds(cut, layers[cut.layer], uses[cut.layer]) for cut in plan.cuts if cut.layer in uses)


def passed_by_hybrid(
    module: nn.Module, names: Sequence[str], ranks: int, uses: Mapping[str, LayerUse], samples: float
) -> float:
    """The bytes of layers whose outputs are cut among ranks, of which each has a share of the `samples` of a step."""
    layers, found = dict(named_modules(module)), 0.0
    for name in (name for name in names if name in uses):
        layer, use = layers[name], uses[name]
        assert isinstance(layer, nn.Linear)
        rows, others = samples / ranks * use.values / layer.out_features, ranks - 1
        given, returned = rows * layer.in_features * others, rows * layer.out_features * others / ranks
        found += layer.weight.element_size() * (given + 2 * returned + given * use.needs_gradient)
    return found


def rounds_by_hybrid(names: Sequence[str], uses: Mapping[str, LayerUse]) -> int:
    """The messages of such layers that follow each other in a step: all agree on what they run, then values go there
    and back, and so do gradients.
    """
    return sum(4 + uses[name].needs_gradient for name in names if name in uses)


def _of_cut(cut: LayerCut, layer: nn.Module, use: LayerUse, ranks: int) -> float:
    """Values of a sample."""
    inputs, outputs = 0, use.values
    if isinstance(layer, nn.Linear):
        inputs = layer.in_features * outputs // layer.out_features
    if isinstance(layer, nn.MultiheadAttention):  # a sum of what heads give, and one of the gradient by one input
        return outputs * (1 + use.needs_gradient) * 2 * (ranks - 1) / ranks
    if isinstance(layer, nn.RNNBase):
        return _of_units(layer, use, ranks)
    gathered, summed = (ranks - 1) / ranks, 2 * (ranks - 1) / ranks
    if cut.how == "column":
        values = outputs * gathered * (not cut.apart) + inputs * summed * use.needs_gradient
    else:
        values = outputs * summed + inputs * gathered * (use.needs_gradient and not cut.apart)
    return values


def _rounds(cut: LayerCut, layer: nn.Module, use: LayerUse) -> int:
    if isinstance(layer, nn.RNNBase):
        ways = 1 + layer.bidirectional
        positions = use.values // (layer.hidden_size * ways)
        return (2 * positions * layer.num_layers - 1) * ways + isinstance(layer, nn.LSTM) + use.needs_gradient
    forward = not cut.apart if cut.how == "column" else 1
    backward = use.needs_gradient and not (cut.how == "row" and cut.apart)
    return forward + backward


def _of_units(layer: nn.RNNBase, use: LayerUse, ranks: int) -> float:
    """Values of a sample: units of each position, and their gradients; cells at the end; the gradient of inputs."""
    ends = layer.hidden_size * (1 + layer.bidirectional)
    inputs = layer.input_size * use.values // ends
    units = 2 * layer.num_layers * use.values - ends  # the last layer's outputs at the end feed no position
    cells = layer.num_layers * ends * isinstance(layer, nn.LSTM)
    return (units + cells + 2 * inputs * use.needs_gradient) * (ranks - 1) / ranks
