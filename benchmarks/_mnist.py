"""MNIST as the data sets beside the checkout have it, with every fourth of the held-back images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from volary.data.sources.idx import Idx

if TYPE_CHECKING:
    from volary.data._base import Split
    from volary.data.memory import InMemory

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "mnist"
SOURCE = {"name": f"{__file__}:part"}
TRAINING_SAMPLES, HELD_BACK = 60_000, 2500


def require() -> None:
    """Raise DataError, a sentence, unless the files are there."""
    _whole().check()


def part(split: Split) -> InMemory:
    """All that is learnt from, a part of what is held back."""
    import torch

    from volary.data.memory import InMemory

    samples = _whole().open(split)
    if split == "train":
        return samples
    inputs, targets = samples.fetch(torch.arange(0, len(samples), len(samples) // HELD_BACK))
    return InMemory(inputs, targets, samples.classes)


def _whole() -> Idx:
    return Idx(folder=FOLDER, mean=0.1307, std=0.3081)
