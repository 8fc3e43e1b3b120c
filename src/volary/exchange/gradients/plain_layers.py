"""Layers that compute what their type computes and nothing else, from parameters that nobody shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn


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


def in_type_of(weight: Tensor, inputs: Tensor) -> bool:
    """Whether a layer computes with `inputs` in the type of its `weight`: neither under autocast nor converted.

    weight and inputs have any shapes. A layer that looks up rows by integers always does.
    """
    if not inputs.is_floating_point():
        return True
    return inputs.dtype == weight.dtype and not torch.is_autocast_enabled(inputs.device.type)


Hook = Callable[["Tensor"], None]
Looking = TypeVar("Looking", bound=Callable[..., None])
Seeing = TypeVar("Seeing", bound=Callable[..., object])


def only_looks(hook: Looking) -> Looking:
    """A hook on a parameter's gradient that neither changes nor keeps it."""
    hook.only_looks = True  # type: ignore[attr-defined]
    return hook


def lookers(parameter: nn.Parameter) -> list[Hook]:
    """Hooks of the parameter that read its gradient and change nothing."""
    return _looking(_hooks(parameter))


def watched(parameter: nn.Parameter) -> bool:
    """Whether a hook sees its gradient that may change or keep it, beside the one of its bucket."""
    within = list((parameter._backward_hooks or {}).values())
    return len(within) > len(_looking(within)) or len(_hooks(parameter)) > len(lookers(parameter)) + 1


def looked_at(parameter: nn.Parameter) -> bool:
    """Whether a hook looks at the gradient that backward hands over, where it does so."""
    return bool(_looking((parameter._backward_hooks or {}).values()))


def _looking(hooks: Iterable[Seeing]) -> list[Seeing]:
    return [hook for hook in hooks if getattr(hook, "only_looks", False)]


def _hooks(parameter: nn.Parameter) -> list[Hook]:
    return list((parameter._post_accumulate_grad_hooks or {}).values())
