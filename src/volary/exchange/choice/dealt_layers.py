"""Which layers are in which fragment: they are dealt out in turn (Douillard et al. 2025, arXiv:2501.18512)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.naming import named_parameters

if TYPE_CHECKING:
    from torch import nn


def fragments_of(module: nn.Module, count: int) -> list[list[str]]:
    """The names of trained parameters, layer by layer in turn, in so many fragments.

    Raises SettingError if there are fewer layers.
    """
    layers: dict[str, list[str]] = {}
    for name, parameter in named_parameters(module):
        if parameter.requires_grad:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
    if count > max(1, len(layers)):  # one fragment is whatever there is
        raise SettingError(
            f"consistency.fragments is {count}, and the network has {len(layers)} layers with trained parameters; "
            f"accepted: 1 to {len(layers)}"
        )
    every = list(layers.values())
    return [[name for layer in every[first::count] for name in layer] for first in range(count)]
