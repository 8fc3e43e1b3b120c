"""Activations of images as samples x height x width x channels (Coates et al., ICML 2013, section 4)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from volary.errors import SettingError


def channels_last(module: nn.Module) -> None:
    """Let convolutions of images take inputs (n, channels, height, width), and so give outputs, of which the channels
    of a pixel are neighbours in memory. Layers after them keep that; parameters stay as they are.

    Outputs and gradients are the same to rounding. Raises SettingError for a network without such convolutions.
    """
    found = [part for part in module.modules() if isinstance(part, nn.Conv2d)]
    if not found:
        raise SettingError(
            "train.channels_last is true, and the network has no convolution of images (torch.nn.Conv2d); "
            "accepted: channels_last=false"
        )
    for convolution in found:
        convolution.register_forward_pre_hook(_given_so)


def with_channels_last(inputs: Tensor) -> Tensor:
    """The inputs with the channels of a pixel as neighbours, if these are images (n, channels, height, width)."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def _given_so(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(with_channels_last(one) if isinstance(one, Tensor) else one for one in given)
