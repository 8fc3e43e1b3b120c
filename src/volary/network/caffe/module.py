"""A network file of Caffe's as a module: read, translated, made, and with the weights of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.network.caffe.source import PHASES, NetSource
from volary.network.caffe.translating import Translation, Translator
from volary.network.caffe.types.registry import DATA, INPUT

if TYPE_CHECKING:
    from volary.network.caffe.message import CaffeMessage
    from volary.network.graph.module import GraphModule
    from volary.network.layers._base import Shape


def inputs_of(source: NetSource, shape: Shape | None = None) -> dict[str, Shape]:
    """Each blob that the network is fed, with the shape of one sample: the first top of data layers, tops of inputs.

    shape: of the network's only input, whatever the file declares. Raises SettingError where nobody says it.
    """
    found: dict[str, Shape | None] = {}
    for phase in PHASES:
        for layer in source.layers[phase]:
            tops = layer.all("top")
            if layer.one("type") == INPUT:
                shapes = [tuple(one.all("dim")[1:]) for one in layer.part("input_param").all("shape")]
                shapes = shapes * len(tops) if len(shapes) == 1 else shapes
                if len(shapes) != len(tops) or not all(shapes):
                    source.findings.add("has no shape for each of its tops", layer.line, layer.one("name"))
                found.update(zip(tops, shapes, strict=False))
            elif layer.one("type") in DATA and tops:
                found.setdefault(tops[0], _of_data(layer))
    source.findings.raise_if_any()
    if shape is not None:
        if len(found) != 1:
            raise SettingError(f"{source.file}: has {len(found)} inputs ({', '.join(found) or 'none'}); accepted: one")
        return dict.fromkeys(found, shape)
    unknown = [name for name, one in found.items() if one is None]
    if unknown or not found:
        what = f"no shape for its input {unknown[0]!r}" if unknown else "no Input layer and no data layer"
        raise SettingError(f"{source.file}: has {what}; accepted: the shape of a sample, as 3,224,224")
    return {name: one for name, one in found.items() if one is not None}


def _of_data(layer: CaffeMessage) -> Shape | None:
    """The shape of samples that a data layer states itself."""
    memory = layer.part("memory_data_param")
    if layer.one("type") == "MemoryData" and "channels" in memory:
        return tuple(memory.one(side) for side in ("channels", "height", "width"))
    return None


def build(
    source: NetSource, inputs: Mapping[str, Shape], outputs: tuple[str, ...] = ()
) -> tuple[GraphModule, Translation]:
    """The module of a network, with first values as its fillers draw them, and how its layers were translated.

    Raises SettingError with a sentence for each layer that does not fit.
    """
    from volary.network.graph.module import GraphModule

    translation = Translator(source, inputs, outputs).translate()
    return GraphModule(translation.graph, inputs), translation


def with_weights(source: NetSource, inputs: Mapping[str, Shape], weights: Path) -> tuple[GraphModule, Translation]:
    """The same, with the values of a file of weights. Raises SettingError for blobs that do not fit, too."""
    from volary.network.caffe.weights.files import read_weights
    from volary.network.caffe.weights.loading import load

    module, translation = build(source, inputs)
    load(module, translation, read_weights(weights), source.findings)
    return module, translation
