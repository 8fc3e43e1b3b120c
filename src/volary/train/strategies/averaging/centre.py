"""The centre of elastic averaging on a worker: parameters beside those of its network."""

from __future__ import annotations

import torch
from torch import nn

from volary.naming import named_parameters


def centre_of(module: nn.Module) -> nn.Module:
    """Parameters that are called as the network's, and are what these are now, in modules that compute nothing."""
    centre = nn.Module()
    for name, parameter in named_parameters(module):
        *path, last = name.split(".")
        at = centre
        for part in path:
            inside = at._modules.get(part) or nn.Module()
            at._modules[part] = inside  # not by add_module, which refuses some names that an attribute may have
            at = inside
        values = torch.empty_like(parameter, requires_grad=False).copy_(parameter.detach())
        at._parameters[last] = nn.Parameter(values, requires_grad=parameter.requires_grad)
    return centre
