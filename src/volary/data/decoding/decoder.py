"""The protocol of decoders."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from volary.data.records.records import Bytes

Array = NDArray[Any]


class Decoder(Protocol):
    """Bytes of a sample to an array; called from several threads at once."""

    @property
    def kind(self) -> str:
        """The kind of sample, with its article: "an image"."""
        ...

    def __call__(self, record: Bytes, out: Array | None = None) -> Array:
        """Decode. out: where the array may be made, if it turns out to have that shape; else a new one is given.

        Raises whatever it likes for bytes that are damaged or absurdly large once decoded.
        """
        ...

    def other(self, shape: tuple[int, ...], first: tuple[int, ...]) -> str:
        """Say that a sample has another shape than the first one."""
        ...

    def dropped(self) -> list[str]:
        """Say what was not read of all records that were decoded so far, in forked processes, too."""
        ...
