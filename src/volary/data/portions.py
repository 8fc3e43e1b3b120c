"""The protocol of readers of portions: runs of an epoch's order, which somebody hands out one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.indexed import BatchRange


class PortionPart(Protocol):
    """Inputs and targets of `count` samples, which are computed at once."""

    @property
    def inputs(self) -> Any:
        """The inputs, (count, ...), or whatever a loop of one's own takes."""
        ...

    @property
    def targets(self) -> Any:
        """The targets of these samples."""
        ...

    @property
    def count(self) -> int:
        """The number of samples."""
        ...

    @property
    def counted(self) -> float:
        """The number of samples that their loss is a mean over."""
        ...


@dataclass(frozen=True, eq=False)
class ReadPortion:
    """parts: of a portion, in order. lost: samples that could not be read. numbers: in the data, of the others."""

    parts: Sequence[PortionPart]
    lost: int
    numbers: Tensor

    def number(self, first: int, place: int) -> int:
        """The number in the data of a sample of the part that begins at the portion's sample `first`."""
        return int(self.numbers[first + place])


class PortionReader(Protocol):
    """Reads samples in portions."""

    def expect(self, portions: Sequence[BatchRange]) -> None:
        """Announce the portions that are read next, in this order: reading and decoding beside training may begin."""
        ...

    def read(self, portion: BatchRange) -> ReadPortion:
        """Read the samples of a portion. Raises DataError, and what the user's own data set raises."""
        ...

    def close(self) -> None:
        """Let nothing more be read."""
        ...
