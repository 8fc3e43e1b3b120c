"""Replicas that should be equal are compared: a flipped bit or a lost update is found, with its rank and parameter."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from volary.comm.groups.blocking import gather
from volary.errors import RanksDiffer
from volary.naming import named_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from volary.comm.groups.group import Group
    from volary.sharding.holdings import Holdings

BLOCK = 1 << 18  # values that are summed at a time


def fingerprint(module: nn.Module) -> Tensor:
    """One 64-bit sum of each parameter's raw bits, each times a factor of its place. Shape (parameters,).

    Any single flipped bit changes it, and so do values that have changed places.
    """
    return torch.stack([_bits(p.detach()) for p in module.parameters()]).cpu()


def compare_replicas(module: nn.Module, step: int, group: Group, holdings: Holdings | None = None) -> None:
    """Raise RanksDiffer, naming rank and parameter, unless all of `group` hold the same bits. A collective call.

    holdings: who has which block of what is cut; None: nothing is.
    """
    table = gather(fingerprint(module), group).tolist()
    names = [name for name, _ in named_parameters(module)]
    cut: dict[str, list[Sequence[int]]] = {}
    for block, ranks in holdings.cut.items() if holdings is not None else ():
        cut.setdefault(block.name, []).append(ranks)
    for column, name in enumerate(names):
        for ranks in cut.get(name, [range(group.size)]):
            values = {rank: table[rank][column] for rank in ranks}
            usual, count = Counter(values.values()).most_common(1)[0]
            if count < len(values):
                raise RanksDiffer(f"replicas differ at step {step}: {_odd(values, usual, name)}; they should be equal")


def _odd(values: Mapping[int, int], usual: int, name: str) -> str:
    """Which ranks have other values of a parameter: those that most do not have, or all if there are no most."""
    if list(values.values()).count(usual) > len(values) / 2:
        odd = [str(rank) for rank, value in values.items() if value != usual]
        return f"rank {', '.join(odd)} in parameter {name}"
    every = dict.fromkeys(values.values())
    alike = [[str(rank) for rank, value in values.items() if value == one] for one in every]
    return f"parameter {name} is another on " + " than on ".join(f"rank {', '.join(ranks)}" for ranks in alike)


def _bits(parameter: Tensor) -> Tensor:
    # of 32 bits at most: two of 64 that differ in the highest one alone could change places unseen
    integers = {1: torch.uint8, 2: torch.int16}.get(parameter.element_size(), torch.int32)
    factors = _factors(parameter.device)
    # by blocks: products are of 64 bits, and the memory for them is then asked for in one size
    blocks = torch.split(parameter.contiguous().view(integers).flatten(), BLOCK)
    sums = torch.empty(len(blocks), dtype=torch.int64, device=parameter.device)
    for block, total in zip(blocks, sums, strict=True):
        torch.sum(block * factors[: len(block)], 0, out=total)
    return (sums * factors[: len(sums)]).sum()


@cache
def _factors(device: torch.device) -> Tensor:
    """Factors of places in a block: odd, so that no flipped bit is lost, and as if random (SplitMix64's constants)."""
    mixed = torch.arange(1, BLOCK + 1, dtype=torch.int64, device=device)
    for factor, shift in ((-0x61C8864680B583EB, 29), (-0x40A7B892E31B1A47, 32)):
        mixed = mixed * factor
        mixed = mixed ^ (mixed >> shift)
    return mixed | 1
