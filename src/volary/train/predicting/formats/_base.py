"""The protocol of files of predictions: they are begun, given rows in order, and closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class AnswerForm:
    """The form of a row. rows: how many there will be. shape: of a row's values. name: of what they are the output of.

    classes: names, if the values are probabilities. top: so many of the most probable classes alone; 0: all.
    """

    rows: int
    shape: tuple[int, ...]
    name: str = "output"
    classes: tuple[str, ...] = ()
    top: int = 0


class PredictionWriter(Protocol):
    """Writes a file of predictions; nothing is kept of a row that was written."""

    def __init__(self, path: Path, form: AnswerForm) -> None:
        """Begin the file. Raises BadInput for a form that such a file cannot have."""

    def write(self, names: Sequence[str], values: NDArray[Any]) -> None:
        """Write the next rows: what inputs are called, and values (n, *shape) float32, all NaN for one that could not
        be read.
        """
        ...

    def close(self) -> None:
        """Finish the file, to which nothing is added."""
        ...
