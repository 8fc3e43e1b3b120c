"""The protocol of data sources: checked cheaply before a run, opened by each worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples, Split


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
