"""The residual of one rank and one bucket, and how a frame changes it: error feedback, for all codecs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.codec._base import Encoded
from volary.exchange.compression.sections import AS_IT_IS, BucketSection, parts_in

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec
    from volary.exchange.gradients.plan import BucketPlan


@dataclass(slots=True)
class _Books:
    """Of one section: its codec, the residual and the momentum of what waits, and the codec's own memory.

    residual and velocity: (rows, columns) of the section.
    """

    codec: FrameCodec
    residual: Tensor | None
    velocity: Tensor | None
    memory: Tensor


class BucketResidual:
    """The error memory of one bucket that travels by `codec`. Values are in the units of the sum.

    residual: (numel,) of the bucket's layout, what this rank's frames left out so far, as contributor and as owner;
    None if the codec has no feedback. velocity: the same of its momentum, None if it has none. memory: of the codec, by
    the parameter that a section begins in, and by the section.

    Whoever owns a slice, the error to be compensated is the sum of all ranks' residuals: it does not matter to it how
    buckets are cut, or how many ranks there are. Frames lose nothing else (Seide et al., Interspeech 2014).
    """

    def __init__(self, plan: BucketPlan, codec: FrameCodec, memory: dict[str, dict[str, Tensor]]) -> None:
        shape = plan.shape
        self.codec = codec
        self.residual = torch.zeros(shape.numel, dtype=shape.dtype, device=shape.device) if codec.feedback else None
        self.velocity = torch.zeros_like(self.residual) if self.residual is not None and codec.momentum else None
        self._plan, self._memory = plan, memory
        self._books: dict[BucketSection, _Books] = {}

    def tests(self, section: BucketSection) -> bool:
        """Whether values that are not finite are found while they are encoded."""
        books = self._opened(section)
        return books.residual is not None and books.velocity is None

    def contribute(self, section: BucketSection, values: Tensor, frame: Tensor) -> Encoded:
        """Write the frame of `values`, (n,) of the section and finite unless it `tests` them, and of the residual.

        `values` stay as they are where it does, and are used up otherwise.
        """
        books, values = self._opened(section), values.view(section.rows, section.columns)
        if books.residual is None:
            return Encoded.WHOLE if books.codec.encode(values, frame, books.memory) else Encoded.TOO_LARGE
        if books.velocity is None:
            return books.codec.encode_with_feedback(values, books.residual, frame, books.memory)
        _add_to(books.residual, books.velocity, books.codec.momentum, values)
        return self._send(books, books.residual, books.velocity, values, frame)

    def agree(self, section: BucketSection, values: Tensor, others: Sequence[Tensor], frame: Tensor) -> Encoded:
        """As the owner: add what the frames `others` say, and write the frame of the sum. See `contribute`."""
        books = self._opened(section)
        if books.residual is None or books.velocity is None:
            sums = values.view(section.rows, section.columns) if books.residual is None else books.residual
            for other in others:
                books.codec.add(other, sums)
            return self.contribute(section, values, frame)
        values = values.view(section.rows, section.columns)
        _add_to(books.residual, books.velocity, books.codec.momentum, values)
        for other in others:
            books.codec.add(other, books.residual)
        return self._send(books, books.residual, books.velocity, values, frame)

    def _send(self, books: _Books, residual: Tensor, velocity: Tensor, values: Tensor, frame: Tensor) -> Encoded:
        """Write the frame of the residual, which keeps what it leaves out; `values` become what it says."""
        if not books.codec.encode(residual, frame, books.memory):
            return Encoded.TOO_LARGE
        books.codec.decode(frame, values)
        residual -= values
        _stop(velocity, values)
        return Encoded.WHOLE

    def decode(self, section: BucketSection, frame: Tensor, out: Tensor) -> None:
        """Write what was agreed on to `out`, (n,) of the section."""
        self._opened(section).codec.decode(frame, out.view(section.rows, section.columns))

    def hand_over(self, start: int, end: int, to: Tensor) -> None:
        """Hand the residual over: add that of the values from `start` to `end` to `to`, (end - start,)."""
        if self.residual is not None and bool(self.residual[start:end].any()):
            to += self.residual[start:end]
            self.residual[start:end] = 0

    def forget(self) -> None:
        """The memory that this was made with has changed."""
        self._books.clear()

    def _opened(self, section: BucketSection) -> _Books:
        books = self._books.get(section)
        if books is None:
            books = self._books[section] = self._open(section)
        return books

    def _open(self, section: BucketSection) -> _Books:
        rows, columns, span = section.rows, section.columns, slice(section.start, section.end)
        if section.exact:
            return _Books(AS_IT_IS, None, None, torch.empty(0))
        residual, velocity = (
            None if kept is None else kept[span].view(rows, columns) for kept in (self.residual, self.velocity)
        )
        return _Books(self.codec, residual, velocity, self._codec_memory(section))

    def _codec_memory(self, section: BucketSection) -> Tensor:
        count, device = self.codec.memory_values(section.rows, section.columns), self._plan.device
        if count == 0:
            return torch.empty(0, device=device)
        begins = next(parts_in(self._plan, section.start, section.end))
        own = self._memory.setdefault(begins.name, {})
        label = f"{type(self.codec).__name__} of {section.rows} x {section.columns} from {begins.first}"
        fits = label in own and own[label].numel() == count
        own[label] = own[label].to(device) if fits else torch.zeros(count, device=device)
        return own[label]


def _add_to(residual: Tensor, velocity: Tensor, momentum: float, values: Tensor) -> None:
    torch.add(values, velocity, alpha=momentum, out=velocity)
    residual += velocity


def _stop(velocity: Tensor, sent: Tensor) -> None:
    """What was sent has no momentum any more."""
    velocity.masked_fill_(sent != 0, 0)
