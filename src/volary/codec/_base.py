"""What every codec is: tensors to few bytes and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from torch import Tensor


class Codec(Protocol):
    """A codec's settings, and how it encodes values of 32 bits; where they are is where frames are.

    lossless: what is decoded is what was encoded. by_rows: it encodes matrices, whole rows of one parameter; otherwise
    any run of values, as one row. block: values that are encoded on their own, where it is not by rows: the frame of
    many values is the frames of its blocks, one after the other, and the last block may be smaller. feedback: what a
    frame lost is added to the next values (error feedback), by whoever uses the codec. momentum: of what waits for its
    turn, 0 for none (momentum correction, Lin et al. 2018, arXiv:1712.01887, section 3.2).
    """

    lossless: ClassVar[bool]
    by_rows: ClassVar[bool]
    block: ClassVar[int]

    @property
    def feedback(self) -> bool:
        """Whether errors are kept."""
        ...

    @property
    def momentum(self) -> float:
        """Of what waits, in [0, 1)."""
        ...

    def at(self, samples: int) -> Codec:
        """The codec to use once the run has seen so many samples: itself, but for a warm-up."""
        ...

    def frame_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a frame of (rows, columns) values: known without the values, so that it can be awaited."""
        ...

    def memory_values(self, rows: int, columns: int) -> int:
        """Values of 32 bits that the codec remembers from one frame of the same values to the next."""
        ...

    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Write the frame of `values` (rows, columns) to `frame` (frame_bytes,), of uint8.

        memory: (memory_values,), of float32; zeros at first, and changed. Returns whether all values were finite; if
        not, neither frame nor memory mean anything.
        """
        ...

    def decode(self, frame: Tensor, out: Tensor) -> None:
        """Write the values of a frame to `out` (rows, columns)."""
        ...

    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        """Add the values of a frame, times `sign` (1 or -1), to `out` (rows, columns): so are encoded pieces summed."""
        ...
