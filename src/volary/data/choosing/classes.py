"""The class of each sample, where that is known without reading inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from volary.data.choosing.part import DataPart
from volary.data.datasets.mixed import MixedSamples
from volary.data.loading.pipeline import Pipeline
from volary.data.memory import InMemory
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.samples import Samples

_ACCEPTED = "samples of one class each, or a data set of your own with `targets`, the class of each"


def classes_of(samples: Samples, asked: str) -> Tensor:
    """The class (n,) int64 of each sample. asked: who wants to know, in a message. Raises DataError if unknown."""
    found = _targets(samples)
    if found is None:
        raise DataError(f"{asked}, and the data does not say the class of each sample; accepted: {_ACCEPTED}")
    if found.shape != (len(samples),) or found.is_floating_point():
        raise DataError(f"{asked}, and targets are no classes, but {_described(found)}; accepted: {_ACCEPTED}")
    return found.long()


def _targets(samples: Samples) -> Tensor | None:
    """Targets (n, ...) of all samples, if they are at hand."""
    if isinstance(samples, DataPart):
        whole = _targets(samples.whole)
        return None if whole is None else whole[samples.numbers]
    if isinstance(samples, MixedSamples):
        parts = [_targets(part) for part in samples.parts]
        known = [part for part in parts if part is not None]
        return torch.cat(known) if len(known) == len(parts) and samples.each_once else None
    if isinstance(samples, InMemory):
        return samples.targets[torch.arange(len(samples)) % len(samples.targets)]
    if isinstance(samples, Pipeline):
        return samples.targets
    declared = getattr(samples, "targets", None)
    return None if declared is None else torch.as_tensor(declared)


def _described(targets: Tensor) -> str:
    return f"{str(targets.dtype).removeprefix('torch.')} {tuple(targets.shape)}"
