"""Replicas that should be equal are compared: a flipped bit or a lost update is found, with its rank and parameter."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from volary.comm.groups.blocking import gather
from volary.errors import RanksDiffer
from volary.naming import named_parameters

if TYPE_CHECKING:
    from volary.comm.groups.group import Group

BLOCK = 1 << 20  # values that are summed at a time


def fingerprint(module: nn.Module) -> Tensor:
    """One 64-bit sum of the raw bits of each parameter; any single flipped bit changes it. Shape (parameters,)."""
    return torch.stack([_bits(p.detach()) for p in module.parameters()]).cpu()


def compare_replicas(module: nn.Module, step: int, group: Group) -> None:
    """Raise RanksDiffer, naming rank and parameter, unless all of `group` hold the same bits. A collective call."""
    table = gather(fingerprint(module), group).tolist()
    names = [name for name, _ in named_parameters(module)]
    for column, name in enumerate(names):
        values = [row[column] for row in table]
        usual, count = Counter(values).most_common(1)[0]
        if count < group.size:
            odd = [str(rank) for rank, value in enumerate(values) if value != usual]
            who = f"rank {', '.join(odd)}" if count > group.size / 2 else "the ranks"
            raise RanksDiffer(f"replicas differ at step {step}: {who} in parameter {name}; they should be equal")


def _bits(parameter: Tensor) -> Tensor:
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[parameter.element_size()]
    # by blocks: torch converts what it sums in another type, and the memory for that is then asked for in one size
    blocks = torch.split(parameter.contiguous().view(integers).flatten(), BLOCK)
    sums = torch.empty(len(blocks), dtype=torch.int64, device=parameter.device)
    for block, total in zip(blocks, sums, strict=True):
        torch.sum(block, 0, dtype=torch.int64, out=total)
    return sums.sum()
