"""Workers that would never get a sample. Needs no torch: it is asked before anything starts."""

from __future__ import annotations

from volary.errors import SettingError


def refuse_idle_workers(shares: int, batch_size: int, samples: int | None) -> None:
    """Raise SettingError if a worker would never get a sample. samples: of the training part, None if unknown.

    shares: workers that learn from samples of their own.
    """
    if shares > batch_size:
        raise SettingError(
            f"strategy.workers is {shares}, more than the {batch_size} samples of a step (data.batch_size); "
            f"accepted: up to {batch_size} workers, or a batch_size of at least {shares}"
        )
    if samples is not None and shares > samples:
        raise SettingError(
            f"strategy.workers is {shares}, more than the {samples} samples of the training data; "
            f"accepted: up to {samples} workers"
        )
