"""Predictions, in memory or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Predictions:
    """rows: how many inputs there were. lost: a sentence for each that could not be read, by row.

    values (rows, ...) float32, all NaN for those; None if they are in the file `output` alone. names: what inputs are
    called. classes: names, if the values are probabilities. remarks: on what of the input was not read. batch_size: of
    the last batches, as it was chosen.
    """

    rows: int
    lost: Mapping[int, str]
    values: NDArray[Any] | None = None
    names: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    output: Path | None = None
    remarks: tuple[str, ...] = ()
    batch_size: int = 0

    @property
    def labels(self) -> list[str | None]:
        """The most probable class of each input; None for one that could not be read. Empty if there are no classes."""
        if self.values is None or not self.classes or self.values.ndim != 2:
            return []
        best = [None if row in self.lost else int(values.argmax()) for row, values in enumerate(self.values)]
        return [None if number is None else self.classes[number] for number in best]
