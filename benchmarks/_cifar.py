"""CIFAR-10 as the data sets beside the checkout have it, whole or in part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.data.sources.images import Images

if TYPE_CHECKING:
    from volary.data.memory import InMemory
    from volary.data.samples import Split

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "cifar10"
SETTINGS: dict[str, Any] = {
    "folder": str(FOLDER),
    "mean": (0.491, 0.482, 0.447),
    "std": (0.247, 0.243, 0.262),
}
WHOLE = {"name": "images", **SETTINGS}
TRAINING_SAMPLES = 50_000
PART = {"train": 1280, "test": 1000}  # samples, with as many of each class
IN_PART = {"name": f"{__file__}:part"}


def part(split: Split) -> InMemory:
    """Every so many samples of a split."""
    import torch

    from volary.data.memory import InMemory

    samples = Images(**SETTINGS).open(split)
    inputs, targets = samples.fetch(torch.arange(0, len(samples), len(samples) // PART[split])[: PART[split]])
    return InMemory(inputs, targets, samples.classes)
