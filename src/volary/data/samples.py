"""The protocol of data sets that are read by index."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor


Split = Literal["train", "test"]
BOTH: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True)
class HandOver:
    """Rows that another system (`by`) has handed over before training, and for how long this worker waited for them.

    seconds: from when they were asked for until all were there.
    """

    by: str
    rows: int
    seconds: float
    waited_s: float


class Samples(Protocol):
    """A part of a data set ("train" or "test"), read by index in any order. Every worker opens all of it."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input, without the batch: (1, 28, 28)."""
        ...

    @property
    def input_dtype(self) -> torch.dtype:
        """Type of the inputs that `fetch` gives."""
        ...

    @property
    def classes(self) -> int | None:
        """How many classes (or symbols) the targets tell apart; None if the data does not say."""
        ...

    def __len__(self) -> int:
        """How many samples there are: at least 1."""
        ...

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (n, *input_shape) and targets (n, ...) of the samples named by `indices` (n,) int64, on the CPU.

        n may be 0: a worker without a share of the last batch still gets tensors of the right shape and dtype. Raises
        CorruptSample, with its index, for a sample that cannot be read.
        """
        ...
