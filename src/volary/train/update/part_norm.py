"""The norm of all gradients of a network of which each worker has a part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
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
        self._own = {block.name for block in holdings.of_replica.writes if block.size}
        self._apart = holdings.mesh.pipeline > 1  # what one rank has no other has

    def __call__(self, gradients: Mapping[str, Tensor], kind: float) -> Tensor:
        """The norm of `kind`, as in torch, of the gradients of all parts, by name; a scalar. A collective call.

        What all have alike is counted once.
        """
        whole = self._apart or self._parts.group.leads
        counted = [one for name, one in gradients.items() if (name in self._own if name in self._cut else whole)]
        norms = [torch.linalg.vector_norm(one, kind) for one in counted]
        own = torch.linalg.vector_norm(torch.stack(norms), kind) if norms else torch.tensor(0.0)
        # in 64 bits: a rank that counts nothing does not know in how many others have theirs
        total: Tensor = torch.linalg.vector_norm(gather(own.double().cpu(), self._parts.group), kind)
        return total.to(reduce(torch.promote_types, (one.dtype for one in gradients.values()), torch.float32))
