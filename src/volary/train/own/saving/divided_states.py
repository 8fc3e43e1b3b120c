"""States of optimisers that all workers have alike, divided among them: each writes some of the tensors.

So a save is as long as a share of it takes, and each worker needs memory for a copy of its share alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from volary.run.checkpoints import SHARED
from volary.train.state.state_file import unpacked

if TYPE_CHECKING:
    from pathlib import Path

    from volary.run.checkpoints import Manifest

Entries = Mapping[Any, Any]  # by parameter, what an optimiser remembers of it, by name
Share = dict[str, dict[Any, dict[str, Tensor]]]  # by optimiser, some of its entries
_FILE = re.compile(rf"{SHARED.removesuffix('.pt')}-worker-\d+\.pt")


def share_file(rank: int) -> str:
    """The file of a rank's share."""
    return f"{SHARED.removesuffix('.pt')}-worker-{rank}.pt"


def shares(
    states: Mapping[str, Entries], ranks: int, first_bytes: int
) -> list[dict[str, dict[Any, dict[str, Tensor]]]]:
    """The tensors that each rank writes, as in `states`, of optimisers by name; about as many bytes each.

    first_bytes: that the first rank writes beside them. Single values are no tensors here: they are written with the
    rest. The same on all ranks, if they have states of the same shapes.
    """
    found: list[Share] = [{} for _ in range(ranks)]
    written = [first_bytes, *[0] * (ranks - 1)]
    tensors = [
        (name, number, key, one)
        for name, entries in states.items()
        for number, entry in entries.items()
        for key, one in _large(entry).items()
    ]
    for name, number, key, one in sorted(tensors, key=lambda each: -each[-1].nbytes):
        rank = written.index(min(written))
        written[rank] += one.nbytes
        found[rank].setdefault(name, {}).setdefault(number, {})[key] = _apart(one)
    return found


def rest(entries: Entries) -> dict[Any, Any]:
    """The entries of an optimiser without the tensors of `shares`."""
    found = dict(entries)
    for number, entry in entries.items():
        if large := _large(entry):
            found[number] = {key: one for key, one in entry.items() if key not in large}
    return found


def joined(named: Mapping[str, Any], folder: Path, manifest: Manifest) -> dict[str, Any]:
    """The states by name in the checkpoint in `folder`, with all shares that were written. Raises RunError."""
    found = dict(named)
    for file in sorted(filter(_FILE.fullmatch, manifest.files)):
        for name, entries in unpacked(folder / file, folder / file).items():
            state = found[name]["state"]
            each = {number: {**state["state"][number], **large} for number, large in entries.items()}
            found[name] = {**found[name], "state": {**state, "state": {**state["state"], **each}}}
    return found


def _large(entry: Any) -> dict[str, Tensor]:
    """The tensors of more than one value in it, by name; an optimiser of the user's own may keep anything there."""
    return {
        key: one
        for key, one in (entry.items() if isinstance(entry, dict) else ())
        if type(one) is Tensor and one.layout == torch.strided and one.numel() > 1
    }


def _apart(one: Tensor) -> Tensor:
    """The same values in a storage of their own: torch.save writes all of the storage that a tensor is in."""
    return one if one.untyped_storage().nbytes() == one.nbytes else one.clone()
