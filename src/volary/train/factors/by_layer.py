"""Layer-wise learning rates: the further a layer is from the output, the slower it learns.

Clark et al. 2020 (ELECTRA, arXiv:2003.10555) and Bao et al. 2022 (BEiT, arXiv:2106.08254) tune networks so that were
trained before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import nn

from volary.errors import SettingError
from volary.naming import named_parameters, unwrapped

if TYPE_CHECKING:
    from torch import Tensor

_EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)


def factors_by_layer(module: nn.Module, decay: float) -> dict[str, float]:
    """The factor of the learning rate of each parameter: `decay` to the power of its layer's place from the end.

    The last layer has 1. Raises SettingError for a network of one layer, of which there is nothing to tell apart.
    """
    if decay == 1:
        return {}
    layers = layers_of(module)
    if len(layers) < 2:
        raise SettingError(f"layer_decay is {decay:g}, and the network has one layer; accepted: 1")
    return {name: decay**place for place, names in enumerate(reversed(layers)) for name in names}


def layers_of(module: nn.Module) -> list[list[str]]:
    """The names of parameters, layer by layer from the input to the output, in the order in which the network has them.

    A layer is each item of a list of them (`nn.Sequential`, `nn.ModuleList`), lists within lists opened; outside of
    lists each module that has no list in it. The network itself is opened always. Layers with vectors alone, as norms,
    belong to the layer before them in the same list or module; the first there, or one behind a list, to the layer
    after it. The first layer has all embeddings that the network begins with, and what modules with layers in them
    have of parameters beside these, as class tokens and positions. A parameter of several layers is of the first.
    """
    names = {id(one): name for name, one in named_parameters(module)}
    found = list(_opened(unwrapped(module)))
    first = [one for layer in found if layer.beside for one in layer.parameters]
    joined = _with_embeddings(_with_norms([layer for layer in found if not layer.beside]))
    seen, layers = set[int](), list[list[str]]()
    for place, parameters in enumerate(joined):
        new = [one for one in (first if not place else []) + parameters if id(one) not in seen]
        seen.update(map(id, new))
        if new:
            layers.append([names[id(one)] for one in new])
    return layers


@dataclass(frozen=True)
class _Layer:
    """A layer as it is found. owner: the module that has it as its child.

    beside: these are no layer, but what `owner` has beside its layers.
    """

    owner: nn.Module
    parameters: list[Tensor]
    embeds: bool = False
    beside: bool = False

    @property
    def vectors(self) -> bool:
        return all(one.ndim < 2 for one in self.parameters)


def _opened(owner: nn.Module) -> Iterator[_Layer]:
    """The parts of a module that is opened, in order."""
    if own := list(owner.parameters(recurse=False)):
        yield _Layer(owner, [*own], beside=True)
    listed = _is_list(owner)
    for wrapped in owner.children():
        child = unwrapped(wrapped)
        if _is_list(child) or (not listed and any(map(_is_list, child.modules()))):
            yield from _opened(child)
        elif parameters := list(child.parameters()):
            yield _Layer(owner, [*parameters], isinstance(child, _EMBEDDINGS))


def _is_list(module: nn.Module) -> bool:
    """Whether its children follow each other, as nothing of its own says otherwise: branches side by side are none."""
    forward = type(module).forward
    return forward is nn.Sequential.forward or (isinstance(module, nn.ModuleList) and forward is nn.ModuleList.forward)


def _with_norms(layers: list[_Layer]) -> list[_Layer]:
    """The same, those with vectors alone in the layers that they belong to."""
    found: list[_Layer] = []
    waiting: list[Tensor] = []
    before: nn.Module | None = None
    for layer in layers:
        if not layer.vectors:
            found.append(_Layer(layer.owner, [*waiting, *layer.parameters], layer.embeds))
            waiting = []
        elif before is layer.owner and found and not waiting:
            found[-1].parameters.extend(layer.parameters)
        else:
            waiting.extend(layer.parameters)
        before = layer.owner
    if waiting:
        found.append(_Layer(layers[-1].owner, waiting))
    return found


def _with_embeddings(layers: list[_Layer]) -> list[list[Tensor]]:
    """The parameters of each, those of the embeddings that the network begins with in one."""
    leading = next((place for place, layer in enumerate(layers) if not layer.embeds), len(layers))
    first = [one for layer in layers[:leading] for one in layer.parameters]
    return ([first] if first else []) + [layer.parameters for layer in layers[leading:]]
