"""Samples in memory: a batch is one gather, and uint8 becomes float32 only then."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from volary.data.data_names import renumber


@dataclass(frozen=True, eq=False)
class InMemory:
    """Inputs (n, ...) and targets (n, ...) of n samples, given as they are or, with a scale, as float32.

    scale and shift: fetched inputs are value * scale + shift; they broadcast over one input.
    length: pretend to have that many samples; sample i is row i % n. remarks: on what of the data is not read.
    columns: of a table, the names of the inputs. class_names: by number; none: classes are numbers.
    weights (n,): by which samples may be drawn, if the data says so. statistics: of each column of the training part,
    its mean and standard deviation, if inputs are prepared by them.
    """

    inputs: Tensor
    targets: Tensor
    classes: int | None = None
    scale: float | Tensor | None = None
    shift: float | Tensor = 0.0
    length: int | None = None
    remarks: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    weights: Tensor | None = None
    statistics: tuple[tuple[float, float], ...] = ()

    def __len__(self) -> int:
        return self.inputs.shape[0] if self.length is None else self.length

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.inputs.shape[1:])

    @property
    def input_dtype(self) -> torch.dtype:
        """float32 with a scale, else the type in memory."""
        return self.inputs.dtype if self.scale is None else torch.float32

    def renumbered(self, numbers: Tensor, class_names: tuple[str, ...]) -> InMemory:
        targets = renumber(self.targets, numbers)
        return replace(self, targets=targets, classes=len(class_names), class_names=class_names)

    def reordered(self, columns: tuple[str, ...]) -> InMemory:
        places = [self.columns.index(name) for name in columns]
        statistics = tuple(self.statistics[place] for place in places) if self.statistics else ()
        return replace(self, inputs=self.inputs[:, places], columns=columns, statistics=statistics)

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        rows = indices if self.length is None else indices % self.inputs.shape[0]
        inputs = self.inputs.index_select(0, rows)
        if self.scale is not None:
            inputs = scaled(inputs, self.scale, self.shift)
        return inputs, self.targets.index_select(0, rows)


def scaled(pixels: Tensor, scale: float | Tensor, shift: float | Tensor) -> Tensor:
    """Pixels (n, ...) uint8 as float32: value * scale + shift."""
    values = pixels.to(torch.float32).mul_(scale)
    return values if isinstance(shift, float) and shift == 0.0 else values.add_(shift)
