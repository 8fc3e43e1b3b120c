"""Layers that compute what their type computes and nothing else, from parameters that nobody shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


def plain_layers(module: nn.Module) -> Iterator[tuple[nn.Module, nn.Parameter]]:
    """Parts of `module` that share no parameter and have the forward of their type, each with its `weight`."""
    owners: dict[int, int] = {}
    for part in module.modules():
        for parameter in part._parameters.values():
            owners[id(parameter)] = owners.get(id(parameter), 0) + 1
    for part in module.modules():
        own = {name: parameter for name, parameter in part._parameters.items() if parameter is not None}
        alone = all(owners[id(parameter)] == 1 for parameter in own.values())
        weight = own.get("weight")
        if weight is not None and alone and "forward" not in vars(part):
            yield part, weight


def watched(parameter: nn.Parameter) -> bool:
    """Whether a hook sees its gradient, beside the one of its bucket: it may change it, or keep it."""
    return bool(parameter._backward_hooks) or len(parameter._post_accumulate_grad_hooks or ()) > 1
