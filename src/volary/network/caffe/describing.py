"""A network of Caffe's as a table: its layers, the shapes between them, their parameters, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.network.caffe.module import build
from volary.network.caffe.translating import TORCH_PHASE

if TYPE_CHECKING:
    from volary.network.caffe.source import CaffePhase, NetSource
    from volary.network.layers._base import Shape


@dataclass(frozen=True)
class NetRow:
    """One layer. shape: of its first output, of one sample. parameters: values that are learnt."""

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape: Shape
    parameters: int


@dataclass(frozen=True)
class NetTable:
    """A network in a phase. inputs: blobs with their shapes. outputs: blobs that it gives."""

    name: str
    inputs: Mapping[str, Shape]
    outputs: tuple[str, ...]
    layers: tuple[NetRow, ...]
    ignored: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """The values that all layers learn."""
        return sum(layer.parameters for layer in self.layers)


def describe(source: NetSource, inputs: Mapping[str, Shape], phase: CaffePhase) -> NetTable:
    """The table of a network in a phase, without a value of it. Raises SettingError for layers that do not fit."""
    with torch.device("meta"):
        module, translation = build(source, inputs)
    types = {one.layer.name: one.message.one("type") for one in translation.layers}
    of_module, rows, counted = TORCH_PHASE[phase], [], set[int]()
    shapes = module.shapes[of_module]
    for wired, path in module.layers(of_module):
        own = [one for one in module.get_submodule(path).parameters() if id(one) not in counted]
        counted |= {id(one) for one in own}
        layer = wired.layer
        count, shape = sum(one.numel() for one in own), shapes[wired.makes[0]]
        rows.append(NetRow(layer.name, types[layer.name], layer.inputs, layer.outputs, shape, count))
    made = {name for name, _ in shapes}
    outputs = tuple(name for name in translation.graph.outputs if name in made)
    return NetTable(source.name, inputs, outputs, tuple(rows), tuple(source.findings.ignored))
