"""Lines of a text as samples of their own, of differing length."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from volary.data.batching.padding import IGNORED
from volary.data.data_names import renumber


@dataclass(frozen=True, eq=False)
class Lines:
    """symbols (s,) int32: all lines, one after the other. starts (n + 1,): of each line, and the end. length: the most
    time steps of a sample; longer lines are cut.
    """

    symbols: Tensor
    starts: Tensor
    length: int
    classes: int  # different symbols that there may be
    vocabulary: str = ""  # of characters: symbol i stands for vocabulary[i]
    remarks: tuple[str, ...] = ()  # on what of the lines is not read
    input_dtype = torch.int64

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.vocabulary)

    def renumbered(self, numbers: Tensor, class_names: tuple[str, ...]) -> Lines:
        symbols = renumber(self.symbols.long(), numbers).int()
        return replace(self, symbols=symbols, classes=len(class_names), vocabulary="".join(class_names))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """(length,), the most there may be."""
        return (self.length,)

    @property
    def lengths(self) -> Tensor:
        """Time steps of each line's inputs: (n,) int64."""
        return (self.starts.diff() - 1).clamp(max=self.length)

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and, one symbol on, targets, both (n, longest of these) int64; filled up with 0, and with IGNORED."""
        steps = self.lengths[indices]
        places = torch.arange(int(steps.max()) if len(indices) else 0)
        there = places < steps.unsqueeze(1)
        at = torch.where(there, self.starts[indices].unsqueeze(1) + places, 0)
        inputs, targets = self.symbols[at].long(), self.symbols[(at + 1).clamp(max=len(self.symbols) - 1)].long()
        return torch.where(there, inputs, 0), torch.where(there, targets, IGNORED)
