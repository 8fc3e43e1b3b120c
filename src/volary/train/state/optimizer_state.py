"""An optimiser's state by parts of parameters, which may be cut otherwise when it is read than when written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from volary.errors import RunError
from volary.train.state.state_file import unpacked
from volary.train.update.rule import PartState

if TYPE_CHECKING:
    from pathlib import Path

    from volary.run.checkpoints import Manifest

OPTIMIZER = "optimizer.pt"  # what one process writes that updates all parameters


def optimizer_file(writer: str) -> str:
    """The file of what `writer` updates, which is some of the parameters."""
    return f"optimizer-{writer}.pt"


class OptimizerState:
    """Of parts that do not overlap; of parameters that were never updated there is none."""

    def __init__(self, parts: Iterable[PartState] = ()) -> None:
        self._parts: dict[str, list[PartState]] = {}
        for part in parts:
            if part.each or part.whole:
                self._parts.setdefault(part.name, []).append(part)
        for known in self._parts.values():
            known.sort(key=lambda part: part.start)

    def of(self, name: str, start: int, end: int, *, copied: bool = True) -> PartState:
        """Of values `start` to `end` of a parameter. Raises RunError if there is something of only some of them.

        copied: False: in the memory of the part that they lie in, if it is one.
        """
        between = list(self._between(name, start, end))
        if not between:
            return PartState(name, start, end, {}, {})
        if sum(len(range(*span.indices(part.end - part.start))) for part, span in between) != end - start:
            raise RunError(f"the optimiser's state covers some of the values {start} to {end} of {name}, and not all")
        first = between[0][0]
        pieces = {key: [part.each[key][span] for part, span in between] for key in first.each}
        shares = len(between) == 1 and not copied
        each = {key: found[0] if shares else torch.cat(found) for key, found in pieces.items()}
        return PartState(name, start, end, each, first.whole)

    def plain(self) -> list[Any]:
        """All of it in tensors, plain values and containers of these."""
        parts = [part for known in self._parts.values() for part in known]
        return [[part.name, part.start, part.end, dict(part.each), dict(part.whole)] for part in parts]

    @classmethod
    def read(cls, folder: Path, manifest: Manifest) -> OptimizerState:
        """All that is in the checkpoint in `folder`, whoever wrote which parts; tensors stay on the disk until used."""
        files = [name for name in sorted(manifest.files) if name == OPTIMIZER or name.startswith("optimizer-")]
        return cls.from_plain(part for name in files for part in unpacked(folder / name, folder / name))

    @classmethod
    def from_plain(cls, plain: Iterable[Any]) -> OptimizerState:
        """The state of which `plain` made these plain values."""
        return cls(PartState(*each) for each in plain)

    def _between(self, name: str, start: int, end: int) -> Iterator[tuple[PartState, slice]]:
        for part in self._parts.get(name, []):
            low, high = max(start, part.start), min(end, part.end)
            if low < high or (start == end == part.start == part.end):
                yield part, slice(low - part.start, high - part.start)
