"""The one model that replicas which differ are: lent to the network while somebody looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import add_up
from volary.train.agreement.first_state import messages

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group


@contextmanager
@torch.no_grad()
def lent(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Let parameters have these values for a while; gives copies of their own, which they have again afterwards."""
    own = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    try:
        for name, one in values.items():
            parameters[name].copy_(one)
        yield own
    finally:
        for name, parameter in parameters.items():
            parameter.copy_(own[name])


@contextmanager
@torch.no_grad()
def lent_mean(parameters: Mapping[str, Tensor], weight: float, group: Group) -> Iterator[dict[str, Tensor]]:
    """As `lent`: the mean of all ranks' parameters. weight: this rank's part of it. A collective call."""
    with lent(parameters, {}) as own:
        for together in messages(list(parameters.values())):
            values = torch.cat([parameter.detach().reshape(-1) for parameter in together])
            add_up(values.mul_(weight), group)
            parts = torch.split(values, [parameter.numel() for parameter in together])
            for parameter, mean in zip(together, parts, strict=True):
                parameter.copy_(mean.view(parameter.shape))
        yield own
