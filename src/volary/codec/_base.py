"""What every codec is: tensors to few bytes and back."""

from __future__ import annotations

from typing import ClassVar, Protocol


class Codec(Protocol):
    """A codec's settings and its promises. `summable`: a collective may add its frames without decoding them."""

    summable: ClassVar[bool]

    def frame_bytes(self, numel: int, itemsize: int) -> int:
        """Bytes on the wire for `numel` values of `itemsize` bytes each."""
        ...
