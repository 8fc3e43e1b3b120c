"""The samples that a session is tried with: which they are, and reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from volary.data.datasets.stream import Stream
from volary.errors import BadInput, CorruptSample, DataError
from volary.errors.raised import raised
from volary.session.values.reference import name_of

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.samples import Samples
    from volary.session.spec import Session


def first_and_last(session: Session, samples: Samples | Stream) -> list[int]:
    """The numbers of the samples to try: one if there is one, or if a worker gets one at a time; a stream's is 0."""
    numbers = [0, 0] if isinstance(samples, Stream) else sorted({0, len(samples) - 1})
    return numbers[: share_of(session)]


def share_of(session: Session) -> int:
    """How many samples a worker has in a pass, if all have as many."""
    share = session.data.batch_size // (session.strategy.shares * session.train.accumulate)
    return max(2, share) if session.train.sync_batch_norm else share  # batch norms go by the samples of all


def first_samples(session: Session, samples: Samples | Stream, numbers: list[int]) -> tuple[Tensor, Tensor]:
    """Inputs (n, ...) and targets (n, ...) of these samples; a stream gives only the first ones. Raises DataError, with
    a sample's number.
    """
    if not isinstance(samples, Stream):
        return _fetched(session, samples, numbers)
    inputs, targets = samples.first()
    return inputs[numbers], targets[numbers]


def _fetched(session: Session, samples: Samples, numbers: list[int]) -> tuple[Tensor, Tensor]:
    try:
        return _first_readable(session, samples, numbers)
    except BadInput:
        raise
    except Exception as error:
        number, cause = _culprit(samples, numbers) or (numbers[0], error)
        source = name_of(session.data.source)
        raise DataError(f"data {source!r}: sample {number} {raised(cause).predicate}") from cause


def _first_readable(session: Session, samples: Samples, numbers: list[int]) -> tuple[Tensor, Tensor]:
    """Read these samples; for a corrupt one, where the session lets it be skipped, the next that is not."""
    for _ in range(len(samples)):
        try:
            return samples.fetch(torch.tensor(numbers))
        except CorruptSample as problem:
            if not session.data.skip_corrupt or problem.index is None:
                raise
            numbers = [(number + 1) % len(samples) if number == problem.index else number for number in numbers]
    return samples.fetch(torch.tensor(numbers))


def _culprit(samples: Samples, numbers: list[int]) -> tuple[int, Exception] | None:
    """The first sample that cannot be read on its own, and what it raises."""
    for number in numbers:
        try:
            samples.fetch(torch.tensor([number]))
        except Exception as error:
            return number, error
    return None
