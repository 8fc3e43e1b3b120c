"""The parameters that a torch optimiser updates, of all its groups."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


def parameters_of(optimizer: Optimizer) -> list[Tensor]:
    """All of them, of any shapes, in the order in which torch numbers them."""
    return list(chain.from_iterable(group["params"] for group in optimizer.param_groups))


def ids_of(optimizer: Optimizer) -> set[int]:
    """The ids of all of them."""
    return set(map(id, parameters_of(optimizer)))
