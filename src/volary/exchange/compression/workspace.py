"""Encodes, adds up and decodes the sections of a bucket; refuses or leaves out what is not finite."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from volary.codec._base import Encoded, finite
from volary.codec.kernels.batches import MatrixBatch
from volary.errors import NotFinite
from volary.exchange.gradients.plan import parts_in

if TYPE_CHECKING:
    from torch import Tensor

    from volary.codec._base import FrameCodec
    from volary.comm.sums.segments import SharedBuffer
    from volary.exchange.compression.residual import BucketResidual
    from volary.exchange.gradients.plan import BucketPlan
    from volary.server.protocol.sections import Section


class Workspace:
    """Memory for the codecs of the bucket with `plan`. board: what `ranks` of this node contribute, added up here if
    they are several.

    left_out: called with a sentence, once a parameter, about values that are not finite and count as zero; None:
    NotFinite is raised instead.
    """

    def __init__(
        self,
        plan: BucketPlan,
        residual: BucketResidual,
        board: SharedBuffer,
        ranks: Sequence[int],
        left_out: Callable[[str], None] | None,
    ) -> None:
        self._plan, self._residual, self._board, self._ranks, self._left_out = plan, residual, board, ranks, left_out
        self._reported: set[str] = set()

    def contribute(self, section: Section, frame: Tensor) -> None:
        """Write the frame, (bytes,) of uint8, of what this node contributes. Raises NotFinite."""
        self._encode(section, lambda values: self._residual.contribute(section, values, frame))

    def agree(self, section: Section, others: Sequence[Tensor], frame: Tensor) -> None:
        """Write the frame, (bytes,), of the sum of `others` and what this node gives; store it. Raises NotFinite."""
        self._encode(section, lambda values: self._residual.agree(section, values, others, frame))
        self.store(section, frame)

    def add_up(self, section: Section, others: Sequence[Tensor]) -> None:
        """As the owner, add what the frames `others` hold, (bytes,) each, to what is here. Raises NotFinite."""
        values = self._board.agreed[section.start : section.end]
        if not section.exact and not finite(values):
            self._leave_out(section)
            _drop_not_finite(section, values)
        self._residual.add_up(section, values, others)

    def store(self, section: Section, frame: Tensor) -> None:
        """Store the values of a sum's frame, (bytes,) of uint8."""
        self._residual.decode(section, frame, self._board.agreed[section.start : section.end])

    def _encode(self, section: Section, encode: Callable[[Tensor], Encoded]) -> None:
        if len(self._ranks) > 1:
            self._board.add_between(section.start, section.end)
        values = self._board.agreed[section.start : section.end]
        if not section.exact and not self._residual.tests(section) and not finite(values):
            self._leave_out(section)
            _drop_not_finite(section, values)
        found = encode(values)
        if found is Encoded.LEFT_OUT:
            self._leave_out(section)
        if found is Encoded.TOO_LARGE:
            raise self._too_large(section, self._residual.sums(section, values))

    def _leave_out(self, section: Section) -> None:
        """Tell whose fault it is that what this node contributes to a section is left out."""
        found = self._not_finite(section)
        if not found:
            raise self._too_large(section, self._board.agreed[section.start : section.end])
        for name, rank in found.items():
            why = f"the gradient of {name} on rank {rank} is NaN or infinite"
            if self._left_out is None:
                raise NotFinite(f"{why}, which cannot be encoded")
            if name not in self._reported:
                self._reported.add(name)
                self._left_out(f"{why}: what cannot be encoded counts as zero there, with what lies beside it")

    def _not_finite(self, section: Section) -> dict[str, int]:
        """The parameters whose values are not, each with the first rank of which that is true."""
        found = dict[str, int]()
        for at, part in parts_in(self._plan, section.start, section.end):
            for rank, contribution in zip(self._ranks, self._board.contributions, strict=True):
                if not bool(contribution[at : at + part.size].isfinite().all()):
                    found.setdefault(part.name, rank)
        return found

    def _too_large(self, section: Section, sums: Tensor) -> NotFinite:
        parts = list(parts_in(self._plan, section.start, section.end))
        pieces = [(part.name, sums[at - section.start :][: part.size]) for at, part in parts]
        name = next((name for name, values in pieces if not bool(values.isfinite().all())), pieces[0][0])
        return NotFinite(f"the sum of the gradients of {name} is too large for 32 bits")


def _drop_not_finite(section: Section, values: Tensor) -> None:
    """Let all values of a matrix, of those of a section, count as zero where one is not finite."""
    for one in torch.split(values, [rows * columns for rows, columns in section.shapes]):
        if not finite(one):
            one.zero_()


def try_out(codec: FrameCodec, device: torch.device) -> None:
    """Compile what is compiled at its first use: now, when nobody waits for a frame."""
    values = torch.ones(2, 32, device=device) if codec.by_rows else torch.ones(1, 64, device=device)
    frame = torch.empty(codec.frame_bytes(*values.shape), dtype=torch.uint8, device=device)
    memory = torch.zeros(codec.memory_values(*values.shape), device=device)
    codec.encode(values, frame, memory)
    codec.encode_with_feedback(values, torch.zeros_like(values), frame, memory)
    codec.decode(frame, values)
    codec.add(frame, values, -1)
    batch, flat = MatrixBatch(codec, [(len(values), values.shape[1])]), values.view(-1)
    codec.encode_each(batch, flat, torch.zeros_like(flat), frame, memory)
    codec.decode_each(batch, frame, flat)
    codec.add_each(batch, frame, flat)
