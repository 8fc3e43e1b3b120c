"""Inputs without targets, and the protocol of sources that read them as they read the data of training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from volary.data.data_names import DataNames
    from volary.data.samples import Samples


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """Inputs in the order of their file or folder. samples: their targets (n,) int64 are nobody's classes.

    name: what the output calls a row. last: in a sequence the output of the position that the target says is meant.
    """

    samples: Samples
    name: Callable[[int], str] = str
    last: bool = False


@runtime_checkable
class ReadsUnlabelled(Protocol):
    """A source that can read inputs without targets."""

    def unlabelled(self, given: Path, known: DataNames) -> Unlabelled:
        """Read the inputs in `given`, a file or folder, with this source's preprocessing.

        known: the classes and columns of the run. Raises DataError for what cannot be read so.
        """
        ...
