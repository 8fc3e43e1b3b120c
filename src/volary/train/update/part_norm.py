"""The norm of all gradients of a network of which each worker has a part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from volary.comm.groups.blocking import gather

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.layer_group import PartGroup
    from volary.sharding.holdings import Holdings


class PartNorm:
    """parts: the workers that hold one network together."""

    def __init__(self, holdings: Holdings, parts: PartGroup) -> None:
        self._cut, self._parts = holdings.blocks, parts
        self._apart = holdings.mesh.pipeline > 1  # what one rank has no other has

    def __call__(self, gradients: Mapping[str, Tensor], kind: float) -> Tensor:
        """The norm of `kind`, as in torch, of the gradients of all parts, by name; a scalar. A collective call.

        What all have alike is counted once.
        """
        whole = self._apart or self._parts.group.leads
        counted = [one for name, one in gradients.items() if whole or name in self._cut]
        norms = [torch.linalg.vector_norm(one, kind) for one in counted]
        own = torch.linalg.vector_norm(torch.stack(norms), kind) if norms else torch.tensor(0.0)
        total: Tensor = torch.linalg.vector_norm(gather(own.cpu(), self._parts.group), kind)
        return total
