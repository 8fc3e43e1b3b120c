"""A network as Caffe's own files: its layers in a message, and the values of its parameters in it as blobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from volary.errors import SettingError
from volary.network.caffe.message import CaffeMessage
from volary.network.caffe.writing.layers import NetworkPart, caffe_layers
from volary.network.dry_run import unchanged
from volary.network.evaluating import evaluating
from volary.network.graph.module import GraphModule

if TYPE_CHECKING:
    from volary.network.graph.wiring import Edge
    from volary.network.layers._base import Shape


def prototxt(module: nn.Module, input_shape: Shape, name: str) -> CaffeMessage:
    """The network with its values, computing what the module does in evaluation; its text leaves the values out.

    input_shape: of one sample. Raises SettingError, a line for each layer that Caffe does not have.
    """
    parts = list(_of_graph(module) if isinstance(module, GraphModule) else _of_sequence(module, input_shape))
    dims = CaffeMessage("BlobShape").add("dim", 1, *input_shape)
    data = CaffeMessage("Layer").add("name", "data").add("type", "Input").add("top", parts[0].reads[0])
    data.add("input_param", CaffeMessage("Input").add("shape", dims))
    net = CaffeMessage("Net").add("name", name).add("layer", data)
    problems = []
    for part in parts:
        try:
            net.add("layer", *caffe_layers(part))
        except SettingError as error:
            problems.append(f"layer {part.name!r}: {error}")
    if problems:
        raise SettingError("\n".join(problems))
    return net


def _of_graph(module: GraphModule) -> Iterator[NetworkPart]:
    shapes = module.shapes["evaluate"]
    for wired, path in module.layers("evaluate"):
        edges = tuple(map(_blob, wired.reads)), tuple(map(_blob, wired.makes))
        yield NetworkPart(
            wired.layer.name, module.get_submodule(path), *edges, tuple(shapes[one] for one in wired.reads)
        )


def _blob(edge: Edge) -> str:
    """A blob for each version of an edge: nothing is written in place."""
    name, version = edge
    return f"{name}_{version}" if version else name


def _of_sequence(module: nn.Module, input_shape: Shape) -> Iterator[NetworkPart]:
    """The layers of a sequence, and of sequences in it. Raises SettingError for any other network."""
    layers, edge = list(_flat("", module)), "data"
    given = _given(module, dict(layers), input_shape)
    for name, layer in layers:
        yield NetworkPart(name, layer, (edge,), (name,), (given[name],))
        edge = name


def _flat(prefix: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(module, nn.Sequential):
        what = type(module).__name__
        raise SettingError(f"the network is a {what}; accepted: a sequence of layers, or a graph of them")
    for name, layer in module.named_children():
        if isinstance(layer, nn.Sequential):
            yield from _flat(f"{prefix}{name}.", layer)
        else:
            yield f"{prefix}{name}", layer


def _given(module: nn.Module, layers: Mapping[str, nn.Module], input_shape: Shape) -> dict[str, Shape]:
    """The shape that each layer is given, without the batch, found by running the network once."""
    found: dict[str, Shape] = {}

    def watched(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def before(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            found[name] = tuple(given[0].shape[1:])

        return before

    handles = [layer.register_forward_pre_hook(watched(name)) for name, layer in layers.items()]
    try:
        with unchanged(module), evaluating(module), torch.no_grad():
            module(torch.zeros(1, *input_shape))
    finally:
        for handle in handles:
            handle.remove()
    return found
