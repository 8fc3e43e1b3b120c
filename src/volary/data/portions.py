"""The protocol of readers of portions: runs of an epoch's order, which somebody hands out one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.indexed import BatchRange


class PortionPart(Protocol):
    """What is computed at once: inputs and targets of `count` samples."""

    @property
    def inputs(self) -> Any:
        """(count, ...), or whatever a loop of one's own takes."""
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
        """What their loss is a mean over, in samples."""
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
    """Reads portions. samples: of an epoch."""

    samples: int

    def expect(self, portions: Sequence[BatchRange]) -> None:
        """These are read next, in this order: what can be read and decoded beside training may begin."""
        ...

    def read(self, portion: BatchRange) -> ReadPortion:
        """Read the samples of a portion. Raises DataError, and what the user's own data set raises."""
        ...

    def close(self) -> None:
        """Nothing more is read."""
        ...
