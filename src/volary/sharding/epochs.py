"""Counts the samples of a run in epochs and batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Epochs:
    """Epochs of so many `samples`, in batches of `batch_size`, of which the last of each epoch may be smaller.

    Batches and samples are those of all workers together.
    """

    samples: int
    batch_size: int

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return -(-self.samples // self.batch_size)

    def steps_of(self, samples: int) -> int:
        """Whole batches that so many samples are, from the beginning of the run."""
        epochs, rest = divmod(samples, self.samples)
        return epochs * self.steps + rest // self.batch_size

    def samples_of(self, steps: int) -> int:
        """Samples that so many batches are: the inverse of `steps_of`."""
        epoch, end = self.end_of(steps)
        return epoch * self.samples + min(end, self.samples)

    def end_of(self, steps: int) -> tuple[int, int]:
        """The epoch, and the place in it, where so many batches end."""
        epoch, rest = divmod(steps, self.steps)
        return epoch, rest * self.batch_size

    def batch_at(self, start: int) -> range:
        """The places of the batch that has the sample at `start` of an epoch."""
        first = start // self.batch_size * self.batch_size
        return range(first, min(first + self.batch_size, self.samples))
