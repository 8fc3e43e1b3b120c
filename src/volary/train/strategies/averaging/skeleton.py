"""Parameters under the names that a network gives them, in modules that compute nothing."""

from __future__ import annotations

import torch
from torch import nn

from volary.naming import named_parameters


def centre_of(module: nn.Module) -> nn.Module:
    """The centre of elastic averaging: parameters that are called as the network's, and are what these are now."""
    centre = nn.Module()
    for name, parameter in named_parameters(module):
        values = torch.empty_like(parameter, requires_grad=False).copy_(parameter.detach())
        put(centre, name, nn.Parameter(values, requires_grad=parameter.requires_grad))
    return centre


def put(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Let a module have a parameter of this name, which may lead through modules inside."""
    *path, last = name.split(".")
    for part in path:
        inside = module._modules.get(part) or nn.Module()
        module._modules[part] = inside  # not by add_module, which refuses some names that an attribute may have
        module = inside
    module._parameters[last] = parameter
