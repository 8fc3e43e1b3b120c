"""The protocol of readers: whoever coordinates says which places of an order come, and a reader has their samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from torch import Tensor


class SamplePlaces(NamedTuple):
    """Places in the order of an epoch whose samples are read at once: a worker's share of a batch, or a portion."""

    epoch: int
    start: int
    end: int
    step: int = 1

    @property
    def range(self) -> range:
        """The same as numbers within the epoch; there may be none."""
        return range(self.start, self.end, self.step)


class Found(NamedTuple):
    """Inputs (n, ...) and targets (n, ...) of samples; lost: how many more could not be read."""

    inputs: Tensor
    targets: Tensor
    lost: int


class OrderReader(Protocol):
    """Reads samples in an order, from any place of it; a source of samples is one such file."""

    def expect(self, coming: Iterable[SamplePlaces]) -> None:
        """Announce what is read next, in this order, in place of what was announced before.

        As much of it is asked for as there is room for: reading and decoding begin beside training.
        """
        ...

    def read(self, places: SamplePlaces) -> Any:
        """Read the samples there. Raises DataError, CorruptSample, and what the user's own data set raises."""
        ...


class SessionReader(OrderReader, Protocol):
    """A reader of a session's data. length: of an epoch; None if nobody knows. scale: what makes inputs of what is
    read. shuffled: samples of a block of the order; 0: as they come; below 0: of the weights that they are drawn by.
    """

    length: int | None
    scale: Callable[[Tensor], Tensor] | None
    shuffled: int

    def end_of(self, epoch: int, start: int, size: int) -> tuple[int, bool]:
        """Where the `size` samples end that follow `start`, and whether the epoch ends with them."""
        ...

    def read(self, places: SamplePlaces) -> Found: ...

    def numbers(self, places: SamplePlaces) -> Tensor:
        """The numbers in the data, (n,), of the samples there that can be read."""
        ...
