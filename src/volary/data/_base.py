"""What a source of data promises: checked cheaply before a run, opened by each worker, read by index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from volary.data.stream import Stream

Split = Literal["train", "test"]


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


class Source(Protocol):
    """Settings of a data set: a frozen dataclass, importable without torch."""

    def check(self) -> None:
        """Look, cheaply and with the standard library alone, whether the data can be what it should be.

        Raises DataError: one sentence with the path, what is wrong with it and what is accepted.
        """
        ...

    def count(self, split: Split) -> int | None:
        """How many samples `split` has, if that can be told as cheaply as `check`; else None."""
        ...

    def open(self, split: Split) -> Samples | Stream:
        """The samples of `split`. Raises DataError for what only reading can find, and for an empty data set."""
        ...
