"""The protocol of codecs: most encode gradients; some choose among others, layer by layer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec.kernels.batches import MatrixBatch


@dataclass(frozen=True)
class Layer:
    """Parameters that travel in one way, as plain data.

    values: of all of them. rows, columns: of the one that is a matrix. encodable: it can be encoded. products: how many
    products of two vectors the gradient is the sum of, on one worker and in one step; None: it is no such sum, or it is
    not known yet. factor_values: of the two vectors of one product.
    """

    names: tuple[str, ...]
    values: int
    rows: int
    columns: int
    encodable: bool
    products: float | None = None
    factor_values: int = 0


@dataclass(frozen=True)
class Option:
    """A codec that a layer may take, and what is expected of it in a step.

    link_bytes: on a link. wire_s: until they have passed it. work_s: of a core, on each worker. seconds: what the layer
    takes of the step, by which it is picked.
    """

    codec: Codec
    name: str
    link_bytes: float
    seconds: float
    wire_s: float = 0.0
    work_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Codec:
    """A codec's settings. Defaults are those of one that always travels in the same representation.

    representation: a file of `volary.exchange.representations`; empty: it chooses among others. lossless: what arrives
    is what was sent, but for rounding.
    """

    representation: ClassVar[str] = ""
    lossless: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The codec's name, that of its file, as a session has it."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def chooses(self) -> bool:
        """Whether it chooses by samples, workers or links: the choice is known once these are."""
        return len(self.leaves()) > 1

    @property
    def follows(self) -> bool:
        """Whether it chooses by expected seconds, and again when the links change."""
        return False

    @property
    def exact(self) -> bool:
        """Whether all values travel unchanged, whatever the layer."""
        return all(one.representation == "exact" for one in self.leaves())

    @property
    def equal(self) -> bool:
        """Whether all workers receive the same, so that replicas stay equal."""
        return True

    @property
    def needs_gradients(self) -> bool:
        """Whether only gradients can travel so."""
        return False

    @property
    def feedback(self) -> bool:
        """Whether the codec's user adds what a frame lost to the next values (error feedback)."""
        return False

    def at(self, samples: int) -> Codec:
        """The codec to use once the run has seen so many samples: itself, but for a warm-up."""
        return self

    def of(self, parameter: str) -> Codec:
        """The codec of the parameter called so: itself, but where codecs are given by name."""
        return self

    def leaves(self) -> Sequence[Codec]:
        """The codecs that a layer may travel by; as it is comes first if there is a choice."""
        return (self,)

    def fits(self, layer: Layer) -> bool:
        """Whether the layer's gradient can travel by this one; otherwise it travels as it is."""
        return True

    def pick(self, layer: Layer, options: Sequence[Option]) -> tuple[Option, str]:
        """Choose one of the options that fit the layer, in the order of `leaves`; say why, for people."""
        return options[0], "as set"

    def patterns(self) -> Iterable[str]:
        """The patterns by which it finds a parameter's codec."""
        return ()


class Encoded(Enum):
    """The outcome of encoding values, from the best to the worst."""

    WHOLE = auto()
    LEFT_OUT = auto()  # some were not finite: these count as zero, perhaps with what lies beside them
    TOO_LARGE = auto()  # their sum with the residual does not fit into 32 bits: there is no frame


@dataclass(frozen=True, kw_only=True)
class FrameCodec(Codec, ABC):
    """Encodes values of 32 bits to frames and back; where values are, there are their frames.

    lossless: what is decoded is what was encoded. by_rows: it encodes matrices, whole rows of one parameter; otherwise
    any run of values, as one row. block: values that are encoded on their own, where it is not by rows: the frame of
    many values is the frames of its blocks, one after the other, and the last block may be smaller. section_values: how
    many are encoded at once then; several passes over so many stay in the cache.
    """

    representation: ClassVar[str] = "frames"
    lossless: ClassVar[bool] = False
    by_rows: ClassVar[bool] = False
    block: ClassVar[int] = 1
    section_values: ClassVar[int] = 2**16

    @property
    def momentum(self) -> float:
        """The momentum of what waits, in [0, 1) (momentum correction, Lin et al. 2018, arXiv:1712.01887, 3.2)."""
        return 0.0

    @property
    def decay(self) -> float:
        """The factor of the residual before the next values are added to it, in (0, 1]; below 1 some of it is lost."""
        return 1.0

    def at(self, samples: int) -> FrameCodec:
        return self

    def fits(self, layer: Layer) -> bool:
        return layer.encodable

    @abstractmethod
    def frame_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a frame of (rows, columns) values: known without the values, so that it can be awaited."""

    def memory_values(self, rows: int, columns: int) -> int:
        """Values of 32 bits that the codec remembers from one frame of the same values to the next."""
        return 0

    @abstractmethod
    def encode(self, values: Tensor, frame: Tensor, memory: Tensor) -> bool:
        """Write the frame of `values` (rows, columns) to `frame` (frame_bytes,), of uint8.

        memory: (memory_values,), of float32; zeros at first, and changed. Returns whether all values were finite; if
        not, neither frame nor memory mean anything.
        """

    def encode_with_feedback(self, values: Tensor, residual: Tensor, frame: Tensor, memory: Tensor) -> Encoded:
        """Write the frame of `values` + `residual`, (rows, columns) each, and to `residual` what it leaves out.

        `values` stay as they are. Where they are too large, neither residual nor frame nor memory mean anything.
        """
        # several passes: a codec that needs one says so itself
        whole = finite(values)
        if whole:
            residual += values
        if not self.encode(residual, frame, memory):
            return Encoded.TOO_LARGE
        self.add(frame, residual, -1)
        return Encoded.WHOLE if whole else Encoded.LEFT_OUT

    @abstractmethod
    def decode(self, frame: Tensor, out: Tensor) -> None:
        """Write the values of a frame to `out` (rows, columns)."""

    @abstractmethod
    def add(self, frame: Tensor, out: Tensor, sign: int = 1) -> None:
        """Add the values of a frame, times `sign` (1 or -1), to `out` (rows, columns): so are encoded pieces summed."""

    def encode_each(
        self, batch: MatrixBatch, values: Tensor, residual: Tensor, frames: Tensor, memory: Tensor
    ) -> Encoded:
        """`encode_with_feedback` of the matrices of `batch`, and the worst outcome of them.

        values, residual: (n,) of all. frames: (bytes,) of all. memory: (memory_values,) of all.
        """
        # a call each: a codec whose matrices are often small has one for all
        each = (batch.matrices(values), batch.matrices(residual), batch.frames(frames), batch.memories(memory))
        return max((self.encode_with_feedback(*one) for one in zip(*each, strict=True)), key=lambda one: one.value)

    def decode_each(self, batch: MatrixBatch, frames: Tensor, out: Tensor) -> None:
        """`decode` of the matrices of `batch`, whose values are `out` (n,)."""
        for frame, values in zip(batch.frames(frames), batch.matrices(out), strict=True):
            self.decode(frame, values)

    def add_each(self, batch: MatrixBatch, frames: Tensor, out: Tensor) -> None:
        """`add` of the matrices of `batch`, whose values are `out` (n,)."""
        for frame, values in zip(batch.frames(frames), batch.matrices(out), strict=True):
            self.add(frame, values)


def finite(values: Tensor) -> bool:
    """Whether all values of a tensor, of any shape, are finite."""
    # the sum is not finite if one of them is not, and quicker: only where they are large it may deceive
    return math.isfinite(values.sum().item()) or bool(values.isfinite().all())
