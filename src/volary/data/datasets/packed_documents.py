"""Documents one after the other, cut into sequences of one length: nothing is filled up, no target is across them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volary.data.batching.padding import IGNORED
from volary.data.data_names import renumber

if TYPE_CHECKING:
    from volary.data.records.tokenised import Tokenised


@dataclass(frozen=True, eq=False)
class PackedDocuments:
    """symbols (n,): of all documents, each with its end, the symbol `end`; mapped from a file. length: of a sample.

    What fills no sequence at the end is not read. classes: symbols that there may be. vocabulary: of characters, and
    the end of a document. numbers (classes,): other numbers of the symbols; None: they are these.
    """

    symbols: NDArray[np.unsignedinteger]
    length: int
    classes: int
    end: int
    vocabulary: tuple[str, ...] = ()
    numbers: Tensor | None = None
    input_dtype = torch.int64

    @classmethod
    def between(cls, found: Tokenised, first: int, last: int, length: int) -> PackedDocuments:
        """The documents from the one with the number `first` up to `last`."""
        start, end = (int(found.starts[number]) for number in (first, last))
        return cls(found.symbols[start:end], length, found.classes, found.classes - 1, found.vocabulary)

    def __len__(self) -> int:
        return max(0, len(self.symbols) - 1) // self.length

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.vocabulary

    def renumbered(self, numbers: Tensor, class_names: tuple[str, ...]) -> PackedDocuments:
        return replace(self, classes=len(class_names), vocabulary=class_names, numbers=numbers)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.length,)

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and, one symbol on, targets, both (n, length) int64; IGNORED for the first symbol of a document."""
        places = indices.unsqueeze(1) * self.length + torch.arange(self.length + 1)
        found = torch.from_numpy(self.symbols[places.numpy()].astype(np.int64)).view(-1, self.length + 1)
        named = found if self.numbers is None else renumber(found, self.numbers)
        inputs, targets = named[:, :-1].contiguous(), named[:, 1:]
        return inputs, torch.where(found[:, :-1] == self.end, IGNORED, targets)
