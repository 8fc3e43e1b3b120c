"""The protocol of data sources: checked cheaply before a run, opened by each worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from volary.data.samples import BOTH

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples, Split


class Source(Protocol):
    """Settings of a data set: a frozen dataclass, importable without torch."""

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look, cheaply and with the standard library alone, whether the data can be what it should be.

        parts: that are read. Raises DataError: one sentence with the path, what is wrong with it and what is accepted.
        """
        ...

    def count(self, split: Split) -> int | None:
        """How many samples `split` has, if that can be told as cheaply as `check`; else None."""
        ...

    def open(self, split: Split) -> Samples | Stream:
        """The samples of `split`. Raises DataError for what only reading can find, and for an empty data set."""
        ...


@runtime_checkable
class Prepares(Source, Protocol):
    """A source that prepares samples of the training part in other ways than validation data, as transforms do."""

    def as_validation(self) -> Self:
        """The same, with samples of the training part prepared as validation data is: for a part of it that is."""
        ...


@runtime_checkable
class Fitted(Source, Protocol):
    """A source whose inputs depend on which samples are learnt from, as columns of mean 0 do."""

    def open_divided(self, learnt: Callable[[Samples], Tensor]) -> Samples:
        """All samples of the training part, where only those with the numbers `learnt(samples)` (n,) are learnt from.

        Raises DataError as `open` does.
        """
        ...
