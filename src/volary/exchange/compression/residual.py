"""The residual of one rank and one bucket, and how a frame changes it: error feedback, for all codecs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from volary.codec._base import Encoded
from volary.codec.kernels.batches import MatrixBatch
from volary.exchange.compression.sections import AS_IT_IS
from volary.exchange.gradients.plan import parts_in

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec
    from volary.exchange.gradients.plan import BucketPlan
    from volary.server.protocol.sections import Section

RESIDUAL, VELOCITY = "residual", "velocity"

ResidualState = dict[str, dict[str, "Tensor"]]  # by parameter and kind; values in the parameter's order in memory


@dataclass(slots=True)
class _Books:
    """The state of one section: its codec, the residual and the momentum of what waits, and the codec's own memory.

    residual and velocity: (n,) of the section. owned: this rank has written the frame of its sum. before:
    copies of these tensors from before the newest frame, if that may have to be undone.
    """

    codec: FrameCodec
    batch: MatrixBatch
    residual: Tensor | None
    velocity: Tensor | None
    memory: Tensor
    owned: bool = False
    before: list[Tensor] = field(default_factory=list)

    def keep(self) -> None:
        """Copy all that the next frame changes."""
        if not self.before:
            self.before = [torch.empty_like(one) for one in self._tensors]
        for kept, one in zip(self.before, self._tensors, strict=True):
            kept.copy_(one)

    def undo(self) -> None:
        """Let all be as before the newest frame."""
        for kept, one in zip(self.before, self._tensors, strict=True):
            one.copy_(kept)

    def encode(self, values: Tensor, frames: Tensor) -> bool:
        """Write the frames of values without feedback; whether all were finite."""
        each = (self.batch.matrices(values), self.batch.frames(frames), self.batch.memories(self.memory))
        return all(self.codec.encode(*one) for one in zip(*each, strict=True))

    @property
    def _tensors(self) -> list[Tensor]:
        return [one for one in (self.residual, self.velocity, self.memory) if one is not None]


class BucketResidual:
    """The error memory of one bucket that travels by `codec`. Values are in the units of the sum.

    kept: by parameter, what nobody has taken up yet, and the codec's own memory of sections that begin in it. The
    residual is what this rank's frames left out so far, as contributor and as owner, if the codec has feedback; the
    velocity is that of its momentum. Their memory is there when the bucket is first encoded: then they are taken up.
    undoes: steps may be left out whose gradients are not zero, so that they are undone: see `take_back`.

    Whoever owns a slice, the error to be compensated is the sum of all ranks' residuals: it does not matter to it how
    buckets are cut, or how many ranks there are. Frames lose nothing else (Seide et al., Interspeech 2014).
    """

    def __init__(self, plan: BucketPlan, codec: FrameCodec, kept: ResidualState, *, undoes: bool = False) -> None:
        self.codec, self._plan, self._kept, self._undoes = codec, plan, kept, undoes
        self._taken: dict[str, Tensor] = {}  # by kind, (values,) of all parameters
        self._books: dict[Section, _Books] = {}

    def in_use(self) -> Iterator[tuple[str, str, Tensor]]:
        """Name, kind and values of what was taken up, (numel,) of each parameter."""
        for kind, taken in self._taken.items():
            for (name, _), values in zip(self._plan.parameters, self._pieces(taken), strict=True):
                yield name, kind, values

    def tests(self, section: Section) -> bool:
        """Whether values that are not finite are found while they are encoded."""
        books = self._opened(section)
        return books.residual is not None and books.velocity is None

    def contribute(self, section: Section, values: Tensor, frame: Tensor) -> Encoded:
        """Write the frame of `values`, (n,) of the section and finite unless it `tests` them, and of the residual.

        `values` stay as they are where it does, and are used up otherwise.
        """
        return self._write(self._begun(section), values, frame)

    def _begun(self, section: Section) -> _Books:
        books = self._opened(section)
        if self._undoes:
            books.keep()
        if books.residual is not None and books.codec.decay < 1:
            books.residual.mul_(books.codec.decay)
        return books

    def _write(self, books: _Books, values: Tensor, frame: Tensor) -> Encoded:
        if books.residual is None:
            return Encoded.WHOLE if books.encode(values, frame) else Encoded.TOO_LARGE
        if books.velocity is None:
            return books.codec.encode_each(books.batch, values, books.residual, frame, books.memory)
        _add_to(books.residual, books.velocity, books.codec.momentum, values)
        return self._send(books, books.residual, books.velocity, values, frame)

    def agree(self, section: Section, values: Tensor, others: Sequence[Tensor], frame: Tensor) -> Encoded:
        """As the owner, add what the frames `others` hold, each (bytes,); write the sum's frame. See `contribute`."""
        books = self._begun(section)
        books.owned = True
        if books.residual is None or books.velocity is None:
            sums = values if books.residual is None else books.residual
            for other in others:
                books.codec.add_each(books.batch, other, sums)
            return self._write(books, values, frame)
        _add_to(books.residual, books.velocity, books.codec.momentum, values)
        for other in others:
            books.codec.add_each(books.batch, other, books.residual)
        return self._send(books, books.residual, books.velocity, values, frame)

    def add_up(self, section: Section, values: Tensor, others: Sequence[Tensor]) -> None:
        """As the owner, who encodes nothing, add to `values`, (n,), what the frames `others` hold, each (bytes,).

        Add all that was left out of these values here, too.
        """
        books = self._begun(section)
        books.owned = True
        if books.residual is not None:
            values += books.residual
            books.residual.zero_()
        for other in others:
            books.codec.add_each(books.batch, other, values)

    def _send(self, books: _Books, residual: Tensor, velocity: Tensor, values: Tensor, frame: Tensor) -> Encoded:
        """Write the frame of the residual, which keeps what it leaves out; `values` become what it says."""
        if not books.encode(residual, frame):
            return Encoded.TOO_LARGE
        books.codec.decode_each(books.batch, frame, values)
        residual -= values
        _stop(velocity, values)
        return Encoded.WHOLE

    def decode(self, section: Section, frame: Tensor, out: Tensor) -> None:
        """Write what was agreed on to `out`, (n,) of the section."""
        books = self._opened(section)
        books.codec.decode_each(books.batch, frame, out)

    def sums(self, section: Section, values: Tensor) -> Tensor:
        """The sums that were encoded last of `values`, (n,) of the section: with the residual, if there is one."""
        residual = self._opened(section).residual
        return values if residual is None else residual

    def take_back(self, agreed: Tensor, start: int, end: int) -> None:
        """As the owner of values `start` to `end`, take back what was agreed of them, in `agreed` (numel,).

        Its frames carried what earlier ones had left out, which waits for the next ones again.
        """
        for section, books in list(self._books.items()):  # another thread may encode the next for the first time
            low, high = max(section.start, start), min(section.end, end)
            if books.owned and books.residual is not None and low < high:
                books.residual[low - section.start : high - section.start] += agreed[low:high]

    def leave_out(self, agreed: Tensor, start: int, end: int) -> None:
        """The step of the values from `start` to `end`, a chunk, of `agreed` (numel,), is left out.

        Nothing of it was ever contributed.
        """
        if not self._undoes:  # then only what is zero is left out
            self.take_back(agreed, start, end)
            return
        for section, books in list(self._books.items()):
            if start <= section.start and section.end <= end:
                books.undo()

    def hand_over(self, start: int, end: int, to: Tensor) -> None:
        """Hand the residual over: add that of the values from `start` to `end` to `to`, (end - start,)."""
        first, head = max(start, self._plan.head), self._plan.head
        if not self.codec.feedback or first >= end:
            return
        residual = self._all(RESIDUAL)[first - head : end - head]
        if bool(residual.any()):
            to[first - start :] += residual
            residual.zero_()

    def forget(self) -> None:
        """Forget all sections: what is kept has changed."""
        self._books.clear()
        self._taken.clear()

    def _opened(self, section: Section) -> _Books:
        books = self._books.get(section)
        if books is None:
            books = self._books[section] = self._open(section)
        return books

    def _open(self, section: Section) -> _Books:
        if section.exact:
            return _Books(AS_IT_IS, MatrixBatch(AS_IT_IS, section.shapes), None, None, torch.empty(0))
        residual = self._of(section, RESIDUAL) if self.codec.feedback else None
        velocity = self._of(section, VELOCITY) if self.codec.feedback and self.codec.momentum else None
        batch = MatrixBatch(self.codec, section.shapes)
        return _Books(self.codec, batch, residual, velocity, self._codec_memory(section, batch))

    def _of(self, section: Section, kind: str) -> Tensor:
        head = self._plan.head
        return self._all(kind)[section.start - head : section.end - head]

    def _all(self, kind: str) -> Tensor:
        """(values,) of all parameters, taken up at the first call: a parameter alone goes on in its own memory."""
        if kind not in self._taken:
            plan = self._plan
            found = [self._kept.get(name, {}).pop(kind, None) for name, _ in plan.parameters]
            if len(found) == 1 and found[0] is not None:
                self._taken[kind] = found[0].to(plan.device)
            else:
                values = torch.zeros(plan.shape.numel - plan.head, dtype=plan.dtype, device=plan.device)
                self._taken[kind] = values
                for own, before in zip(self._pieces(values), found, strict=True):
                    if before is not None:
                        own.copy_(before)
        return self._taken[kind]

    def _pieces(self, values: Tensor) -> Sequence[Tensor]:
        return torch.split(values, [parameter.numel() for _, parameter in self._plan.parameters])

    def _codec_memory(self, section: Section, batch: MatrixBatch) -> Tensor:
        """The codec's memory of a section; that of each matrix is kept under the parameter that it is of."""
        memory = torch.zeros(batch.memory_values, device=self._plan.device)
        for place, own in zip(batch.places, batch.memories(memory), strict=True):
            if not own.numel():
                continue
            start = section.start + place.values.start
            _, first = next(parts_in(self._plan, start, section.end))
            kept = self._kept.setdefault(first.name, {})
            label = f"{type(self.codec).__name__} of {place.rows} x {place.columns} from {first.start}"
            if label in kept and kept[label].numel() == own.numel():
                own.copy_(kept[label])
            kept[label] = own
        return memory


def _add_to(residual: Tensor, velocity: Tensor, momentum: float, values: Tensor) -> None:
    torch.add(values, velocity, alpha=momentum, out=velocity)
    residual += velocity


def _stop(velocity: Tensor, sent: Tensor) -> None:
    """Stop the momentum of what was sent."""
    velocity.masked_fill_(sent != 0, 0)
