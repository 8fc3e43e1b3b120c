"""Samples of several sources as one data set."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from volary.data.data_names import DataNames, Renumberable, Reorderable
from volary.data.loading.pipeline import Pipeline
from volary.data.order import seeded
from volary.data.remarks import listed, remarks_of
from volary.data.samples import Samples
from volary.data.stored import fetch
from volary.errors import CorruptSample, DataError


class MixedSamples:
    """Takes so many samples of each part an epoch. A part with more continues in the next epoch, one with less repeats.

    Each pass through a part has an order of its own, so that an epoch with some of its samples has no particular ones.
    """

    block = 1

    def __init__(self, parts: Sequence[Samples], counts: Sequence[int], name: str) -> None:
        first = parts[0]
        for number, part in enumerate(parts):
            _refuse_other(name, number, part, first)
        self.parts, self._counts = list(parts), counts
        self.class_names, self.columns = DataNames.of(first).classes, DataNames.of(first).columns
        self._name = name
        self._ends = torch.tensor(counts).cumsum(0)
        known = [part.classes for part in parts if part.classes is not None]
        self.classes = max(known) if len(known) == len(parts) else None
        self.remarks = tuple(remark for part in parts for remark in remarks_of(part))
        self.input_shape, self.input_dtype = first.input_shape, first.input_dtype

    def __len__(self) -> int:
        return sum(self._counts)

    @property
    def each_once(self) -> bool:
        """Whether each sample of each part comes once an epoch, always with the same number."""
        return list(self._counts) == [len(part) for part in self.parts]

    @property
    def scale(self) -> None:
        """None: parts may have scales of their own."""

    def renumbered(self, numbers: Tensor, class_names: tuple[str, ...]) -> MixedSamples:
        return self._with([one.renumbered(numbers, class_names) for one in self.parts if isinstance(one, Renumberable)])

    def reordered(self, columns: tuple[str, ...]) -> MixedSamples:
        return self._with([one.reordered(columns) for one in self.parts if isinstance(one, Reorderable)])

    def _with(self, parts: list[Samples]) -> MixedSamples:
        assert len(parts) == len(self.parts), "sources of a mix have classes and columns of ours"
        return MixedSamples(parts, self._counts, self._name)

    def take(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        return self.fetch(indices, epoch)

    def prefetch(self, indices: Tensor, epoch: int) -> bool:
        """Let each part that decodes make its share of the batch ahead, if all of them have room."""
        shares = self._shares(indices)
        stored = [(part, number, mine) for number, mine in shares if isinstance(part := self.parts[number], Pipeline)]
        if not all(part.room for part, _, _ in stored):
            return False
        begun = [part.prefetch(self._wanted(number, indices[mine], epoch), epoch) for part, number, mine in stored]
        return any(begun)

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        """Fetch each part's share of these samples, and put them together in their order."""
        rows, pieces = [], []
        for number, mine in self._shares(indices):
            rows.append(mine)
            pieces.append(self._of(number, indices[mine], epoch))
        place = torch.cat(rows).argsort()
        inputs, targets = (torch.cat(parts)[place] for parts in zip(*pieces, strict=True))
        return inputs, targets

    def _shares(self, indices: Tensor) -> list[tuple[int, Tensor]]:
        """The parts that these samples are in, and which of the samples are in each."""
        owners = torch.bucketize(indices, self._ends, right=True)
        return [(number, (owners == number).nonzero().view(-1)) for number in sorted(set(owners.tolist())) or [0]]

    def _wanted(self, number: int, indices: Tensor, epoch: int) -> Tensor:
        """The indices of these samples in their part."""
        return self._rows(number, indices - int(self._ends[number]) + self._counts[number], epoch)

    def _of(self, number: int, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        wanted = self._wanted(number, indices, epoch)
        try:
            return fetch(self.parts[number], wanted, epoch)
        except CorruptSample as problem:
            if problem.index is not None:
                problem.index = int(indices[wanted == problem.index][0])
            raise

    def _rows(self, number: int, places: Tensor, epoch: int) -> Tensor:
        """The samples of a part at these places of its share of the epoch."""
        length, count = len(self.parts[number]), self._counts[number]
        if count == length:
            return places
        at = places + epoch * count
        found = at.clone()
        for one in sorted(set((at // length).tolist())):
            inside = at // length == one
            found[inside] = torch.randperm(length, generator=seeded("mix", number, one))[at[inside] % length]
        return found


def together(parts: Sequence[Samples], name: str) -> MixedSamples:
    """All samples of all parts, one part after the other."""
    return MixedSamples(parts, [len(part) for part in parts], name)


def weighted(parts: Sequence[Samples], weights: Sequence[float], name: str) -> MixedSamples:
    """Mix as many samples as the parts have together: of each its weight's share, at least 1."""
    total, whole = sum(len(part) for part in parts), sum(weights)
    return MixedSamples(parts, [max(1, round(total * weight / whole)) for weight in weights], name)


def _refuse_other(name: str, number: int, part: Samples, first: Samples) -> None:
    """Raise DataError unless inputs and targets of a part, its columns too, are as those of the first one."""
    if part.input_shape != first.input_shape or part.input_dtype != first.input_dtype:
        raise DataError(
            f"{name}: source {number} has inputs {part.input_shape} {part.input_dtype}, source 0 "
            f"{first.input_shape} {first.input_dtype}; accepted: sources of one shape and type"
        )
    mine, wanted = _targets(part), _targets(first)
    if mine != wanted:
        raise DataError(f"{name}: source {number} has targets of {mine}, source 0 of {wanted}; accepted: the same")
    named, columns = DataNames.of(part).columns, DataNames.of(first).columns
    if named != columns and named and columns:
        raise DataError(
            f"{name}: source {number} has the columns {listed(named)}, source 0 {listed(columns)}; "
            "accepted: the same, in the same order"
        )


def _targets(samples: Samples) -> str:
    """The type and the number of dimensions of a batch's targets."""
    _, targets = samples.fetch(torch.empty(0, dtype=torch.int64))
    return f"{str(targets.dtype).removeprefix('torch.')} in {targets.dim()} dimensions"
