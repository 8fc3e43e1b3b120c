"""The codecs of a worker's pushes over a run: what they are now, and the residuals of the slices that they encode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from volary.exchange.compression.error_feedback import ErrorFeedback
from volary.exchange.gradients.plan import row_values
from volary.exchange.servers.pushed import EncodedValues
from volary.server.protocol.sections import of_slice

if TYPE_CHECKING:
    from volary.exchange.compression.residual import ResidualState
    from volary.exchange.gradients.plan import BucketPlan
    from volary.exchange.representations._base import Piece


class PushEncoding:
    """Encodes the buckets of `plans` that travel as frames. warn: as in `volary.exchange.servers.pushed.EncodedValues`.

    empty: nothing of the contribution at hand counts.
    """

    def __init__(self, plans: Sequence[BucketPlan], warn: Callable[[str], None] | None) -> None:
        self._plans, self._warn, self.empty = plans, warn, False
        self._now = _at(plans, 0)
        self._errors = ErrorFeedback(self._now)
        self._encoded: list[tuple[Piece, EncodedValues]] = []

    def slice(self, piece: Piece) -> EncodedValues:
        """The pushed values of a slice, encoded when they leave."""
        made = EncodedValues(piece.values, piece.users, self._warn, piece.parts[0].name, lambda: self.empty)
        self._encoded.append((piece, made))
        self._use(piece, made)
        return made

    def at(self, samples: int) -> None:
        """The run has learnt from so many samples; nothing is under way."""
        now = _at(self._plans, samples)
        if [plan.representation for plan in now] == [plan.representation for plan in self._now]:
            return
        self._now, residuals = now, self._errors.state()
        errors = ErrorFeedback(now)
        errors.restore([residuals])
        self._errors = errors  # as a whole: another thread may copy what there is
        for piece, made in self._encoded:
            self._use(piece, made)

    def state(self, *, copied: bool = True) -> ResidualState:
        """The residuals, see `ErrorFeedback.state`; nothing is under way."""
        return self._errors.state(copied=copied)

    def restore(self, states: Sequence[ResidualState]) -> None:
        """Go on, between two contributions, from what several workers had left out."""
        self._errors.restore(states)

    def _use(self, piece: Piece, made: EncodedValues) -> None:
        plan = self._now[piece.bucket]
        parameters, lengths = dict(plan.parameters), [part.size for part in piece.parts]
        widths = [row_values(parameters[part.name]) for part in piece.parts]
        frames = plan.representation.frames
        assert frames is not None
        found = of_slice(lengths, widths, frames)
        made.use(self._errors.of(plan), replace(found, start=piece.start, end=piece.start + found.end))


def _at(plans: Sequence[BucketPlan], samples: int) -> list[BucketPlan]:
    return [replace(plan, representation=plan.representation.at(samples)) for plan in plans]
