"""The one model that replicas which differ are: their mean, lent to the network while somebody looks at it."""

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
def lent_mean(parameters: Mapping[str, Tensor], weight: float, group: Group) -> Iterator[dict[str, Tensor]]:
    """Let parameters have the mean of all ranks' for a while; gives this rank's own, which they have again afterwards.

    weight: this rank's part of the mean. A collective call.
    """
    own = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for together in messages(list(parameters.values())):
        values = torch.cat([parameter.detach().reshape(-1) for parameter in together])
        add_up(values.mul_(weight), group)
        parts = torch.split(values, [parameter.numel() for parameter in together])
        for parameter, mean in zip(together, parts, strict=True):
            parameter.copy_(mean.view(parameter.shape))
    try:
        yield own
    finally:
        for name, parameter in parameters.items():
            parameter.copy_(own[name])
