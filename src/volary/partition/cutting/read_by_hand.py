"""Refuses a network's code that reads the parameters of a layer that is cut: a rank has a part of them.

`functional.linear(x, self.fc.weight)` would be computed with that part, and nobody would add or gather what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn

from volary.errors import SettingError


class NetworkForward:
    """Whether a forward of `module` is under way. accepted: the partition's setting that names the layers it cuts."""

    def __init__(self, module: nn.Module, partition: str, accepted: str) -> None:
        self._partition, self._accepted, self._depth = partition, accepted, 0
        self.follow(module)

    def follow(self, module: nn.Module) -> None:
        """A forward of `module` is one of the network, too."""
        module.register_forward_pre_hook(self._begin)
        module.register_forward_hook(self._end, always_call=True)

    @property
    def under_way(self) -> bool:
        """Whether the network's code runs now."""
        return self._depth > 0

    def refuse(self, layer: str, parameter: str) -> None:
        """Raise SettingError: the network's code has used the parameter of that layer."""
        raise SettingError(_sentence(layer, parameter, self._partition, self._accepted))

    def _begin(self, *_: Any) -> None:
        self._depth += 1

    def _end(self, *_: Any) -> None:
        self._depth -= 1


def refuse_reads(nodes: Iterable[fx.Node], cut: Collection[str], partition: str, accepted: str) -> None:
    """Raise SettingError if one of these nodes of a network's graph reads a parameter in `cut`, by name, by hand.

    partition, accepted: as of `NetworkForward`.
    """
    for node in nodes:
        if node.op == "get_attr" and str(node.target) in cut:
            layer, _, parameter = str(node.target).rpartition(".")
            raise SettingError(_sentence(layer, parameter, partition, accepted))


def _sentence(layer: str, parameter: str, partition: str, accepted: str) -> str:
    return (
        f"the network's forward uses {layer}.{parameter} outside of {layer}, and with partition={partition} a worker "
        f"has a part of it; accepted: strategy.partition.{accepted} without {layer}, or partition=data"
    )


class HeldInPart(nn.Module):
    """A layer with a part of its parameters, which its own forward alone may use. name: in the network.

    within: the forward of that network. computing: its own forward is under way.
    """

    within: NetworkForward
    name: str
    computing = False

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Call the layer as torch does: until it returns its parameters may be used."""
        vars(self)["computing"] = True
        try:
            return super().__call__(*given, **named)
        finally:
            vars(self)["computing"] = False

    def __getattr__(self, attribute: str) -> Any:
        found = super().__getattr__(attribute)
        if self.computing or not isinstance(found, nn.Parameter) or not self.within.under_way:
            return found
        return _PartRead(found, self, attribute)


class _PartRead(Tensor):
    """In the place of a parameter of which a rank has a part: its shape and type are seen, and its values are not."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    layer: HeldInPart
    parameter: str

    @staticmethod
    def __new__(cls, parameter: Tensor, layer: HeldInPart, name: str) -> _PartRead:
        made: _PartRead = torch.Tensor._make_wrapper_subclass(
            cls, parameter.shape, dtype=parameter.dtype, device=parameter.device, strides=parameter.stride()
        )
        made.layer, made.parameter = layer, name
        return made

    @classmethod
    def __torch_dispatch__(cls, _: Any, __: Any, given: Any = (), named: Any = None) -> Any:
        """Raise SettingError, whatever is done with it."""
        leaves = torch.utils._pytree.tree_leaves((given, named or {}))
        own = next(one for one in leaves if isinstance(one, cls))
        own.layer.within.refuse(own.layer.name, own.parameter)
