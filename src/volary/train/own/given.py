"""Checks what a user's own loop gives to be distributed; what something else distributes already is refused."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from volary.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Collection

# by name, since importing the modules of the last two takes a while
_AVERAGING = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def refuse_given(given: Any) -> None:
    """Raise BadInput for what cannot be distributed, and say what can."""
    if isinstance(given, torch.optim.Optimizer):
        return
    if not isinstance(given, torch.nn.Module):
        more = "; worker.feed takes data" if isinstance(given, DataLoader) else ""
        raise BadInput(
            f"worker.distribute was given a {type(given).__name__}; accepted: torch modules and optimisers, and lists "
            f"of these{more}"
        )
    if lazy := [name for name, one in given.named_parameters() if torch.nn.parameter.is_lazy(one)]:
        raise BadInput(
            f"worker.distribute: {lazy[0]} has no shape yet; accepted: a model that was called once on a batch, which "
            "gives lazy layers their shapes, before its optimiser is made"
        )
    for part in given.modules():
        kinds = {kind.__name__ for kind in type(part).__mro__ if kind.__module__.startswith("torch.")}
        if averaging := next((one for one in _AVERAGING if one in kinds), ""):
            raise BadInput(
                f"worker.distribute was given a model in {averaging}, which averages gradients or divides parameters "
                f"itself; accepted: the model without {averaging}"
            )


def refuse_wrapped(parameters: Collection[int]) -> None:
    """Raise BadInput if some of these parameters, by `id`, are in a DistributedDataParallel: it averages them, too.

    It goes through all objects of the process, once.
    """
    kinds = {DistributedDataParallel, *DistributedDataParallel.__subclasses__()}
    for one in gc.get_objects():
        if type(one) in kinds and any(id(own) in parameters for own in one.parameters()):
            raise BadInput(
                "a distributed model is in a DistributedDataParallel, which averages its gradients once more; "
                "accepted: the model that worker.distribute returns, as it is"
            )
