"""Names of samples in sentences: their number, and their file or record, if they have one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.data.choosing.part import DataPart
from volary.data.loading.pipeline import Pipeline
from volary.data.skipping import Skipping

if TYPE_CHECKING:
    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples


def called(samples: Samples | Stream, number: int) -> str:
    """Name a sample of the training data: "sample 7 of the training data (a/7.wav)"."""
    samples = samples.samples if isinstance(samples, Skipping) else samples
    if isinstance(samples, DataPart):
        return called(samples.whole, int(samples.numbers[number]))
    name = file_of(samples, number)
    return f"sample {number} of the training data" + (f" ({name})" if name else "")


def file_of(samples: Samples | Skipping | Stream, number: int) -> str:
    """The file or record of a sample; empty if it has none."""
    samples = samples.samples if isinstance(samples, Skipping) else samples
    if isinstance(samples, DataPart):
        return file_of(samples.whole, int(samples.numbers[number]))
    return samples.records.name(number) if isinstance(samples, Pipeline) else ""
