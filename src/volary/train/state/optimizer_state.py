"""An optimiser's state by parts of parameters, which may be cut otherwise when it is read than when written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import RunError
from volary.sharding.ranges import Range
from volary.train.state.state_file import unpacked
from volary.train.update.optimizer_rule import PartState

if TYPE_CHECKING:
    from pathlib import Path

    from volary.run.checkpoints import Manifest

OPTIMIZER = "optimizer.pt"  # what one process writes that updates all parameters


def optimizer_file(writer: str) -> str:
    """The file of what `writer` updates, which is some of the parameters."""
    return f"optimizer-{writer}.pt"


class OptimizerState:
    """State of parts that do not overlap; parameters that were never updated have none."""

    def __init__(self, parts: Iterable[PartState] = ()) -> None:
        self._parts: dict[str, list[PartState]] = {}
        for one in parts:
            if one.each or one.whole:
                self._parts.setdefault(one.part.name, []).append(one)
        for known in self._parts.values():
            known.sort(key=lambda one: one.part.start)

    def of(self, part: Range, *, copied: bool = True) -> PartState:
        """The state of `part`. Raises RunError if there is state of only some of its values.

        copied: False: in the memory of the state of a larger part, if one contains it.
        """
        between = list(self._between(part))
        if not between:
            return PartState(part, {}, {})
        if sum(span.stop - span.start for _, span in between) != part.size:
            values = f"values {part.start} to {part.end} of {part.name}"
            raise RunError(f"the optimiser's state covers some of the {values}, and not all")
        first = between[0][0]
        pieces = {key: [one.each[key][span] for one, span in between] for key in first.each}
        shares = len(between) == 1 and not copied
        each = {key: found[0] if shares else torch.cat(found) for key, found in pieces.items()}
        return PartState(part, each, first.whole)

    def plain(self) -> list[Any]:
        """All of it in tensors, plain values and containers of these."""
        parts = [one for known in self._parts.values() for one in known]
        return [[*astuple(one.part), dict(one.each), dict(one.whole)] for one in parts]

    @classmethod
    def read(cls, folder: Path, manifest: Manifest) -> OptimizerState:
        """All that is in the checkpoint in `folder`, whoever wrote which parts; tensors stay on the disk until used."""
        files = [name for name in sorted(manifest.files) if name == OPTIMIZER or name.startswith("optimizer-")]
        return cls.from_plain(part for name in files for part in unpacked(folder / name, folder / name))

    @classmethod
    def from_plain(cls, plain: Iterable[Any]) -> OptimizerState:
        """The state of which `plain` made these plain values."""
        return cls(PartState(Range(*part), each, whole) for *part, each, whole in plain)

    def _between(self, wanted: Range) -> Iterator[tuple[PartState, slice]]:
        for one in self._parts.get(wanted.name, []):
            low, high = max(wanted.start, one.part.start), min(wanted.end, one.part.end)
            if low < high or (one.part == wanted and not wanted.size):
                yield one, slice(low - one.part.start, high - one.part.start)
