"""Cuts no more of a network than a worker's memory asks for: what stays whole needs nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from volary.errors import SettingError
from volary.naming import named_modules, named_parameters
from volary.partition.cutting.cut_network import blocks_of
from volary.partition.cutting.plans import LayerCut
from volary.sharding.groups import RankMesh

if TYPE_CHECKING:
    from torch import nn

    from volary.partition.cutting.plans import Plan


def cut_to(module: nn.Module, plan: Plan, ranks: int, most_bytes: int) -> Plan:
    """The largest cuts of `plan` alone, as many as it takes until no rank holds parameters of more than `most_bytes`.

    Layers that are apart together, or that share a weight, are cut together. Raises SettingError if all are too few.
    """
    held = sum(one.nbytes for one in module.parameters())
    left = [(_saved_bytes(module, together, ranks), together) for together in _together(module, plan)]
    kept = set[str]()
    if held <= most_bytes:
        raise SettingError(
            f"memory is {most_bytes:,} bytes of parameters, and the whole network has {held:,}: nothing is to be cut; "
            "accepted: less, or partition=data"
        )
    for saved, together in sorted(left, key=lambda one: -one[0]):
        if held <= most_bytes:
            break
        held -= saved
        kept |= {cut.layer for cut in together}
    if held > most_bytes:
        raise SettingError(
            f"memory is {most_bytes:,} bytes of parameters, and a worker holds {held:,} if all is cut over {ranks} "
            f"workers that can be; accepted: {held:,}B or more, or more workers"
        )
    return replace(
        plan,
        cuts=tuple(cut for cut in plan.cuts if cut.layer in kept),
        dropouts={name: first for name, first in plan.dropouts.items() if first in kept},
        heads={name: attend for name, attend in plan.heads.items() if attend in kept},
    )


def _together(module: nn.Module, plan: Plan) -> list[list[LayerCut]]:
    """A row that is apart is cut with the column before it, and what shares a weight with that."""
    layers, found = dict(named_modules(module)), list[list[LayerCut]]()
    for cut in plan.cuts:
        if cut.how == "row" and cut.apart:
            found[-1].append(cut)
            continue
        weight = getattr(layers[cut.layer], "weight", None)  # attention has several
        alike = (one for one in found if any(getattr(layers[other.layer], "weight", cut) is weight for other in one))
        if (known := next(alike, None)) is not None:
            known.append(cut)
        else:
            found.append([cut])
    return found


def _saved_bytes(module: nn.Module, cuts: list[LayerCut], ranks: int) -> int:
    """The bytes that these cuts save on the rank that holds most; a tensor that several share counts once."""
    named, mesh = dict(named_parameters(module)), RankMesh(tensor=ranks)
    largest: dict[str, int] = {}
    for block, _ in (one for cut in cuts for one in blocks_of(module, cut, mesh)):
        largest[block.name] = max(block.size, largest.get(block.name, 0))
    return sum((named[name].numel() - size) * named[name].element_size() for name, size in largest.items())
