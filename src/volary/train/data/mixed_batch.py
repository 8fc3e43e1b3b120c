"""Mixes each sample of a worker's share of a batch with another one of it: inputs, and what their loss is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import one_hot

from volary.data.datasets.stream import Stream
from volary.errors import SettingError
from volary.network.checks import NO_CLASSES
from volary.session.reading.choice import Choice

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.batching.batch import Batch
    from volary.data.samples import Samples
    from volary.network.criterion import Criterion
    from volary.session.spec import Session
    from volary.train.mixing._base import Mixing

IGNORED = -100
MIXINGS = Choice("volary.train.mixing")


@dataclass(frozen=True)
class BatchMixing:
    """Mixes batches in one of these `ways`, which is drawn for each batch, as all that is random of it.

    It is drawn by seed, epoch and batch, so that all workers draw alike, and nothing has to be remembered. A sample's
    other one is that half a share before it: with shares that are every n-th sample of a batch, as of workers that keep
    step, it is the same one for any number of workers of which twice as many divide the batch.
    classes: of the data, if targets are classes.
    """

    ways: Sequence[Mixing]
    seed: int
    classes: int

    def __call__(self, batch: Batch) -> Batch:
        """The batch with other inputs (count, ...), and targets that are mixed as they are.

        Numbers (count, ...) stay numbers; classes (count,) become the shares (count, classes) of each class.
        """
        if not batch.count:
            return batch
        draw = Random(f"{self.seed} {batch.epoch} {batch.step_in_epoch}")
        way = draw.choice(self.ways)
        share = draw.betavariate(way.alpha, way.alpha)
        targets = batch.targets
        if not targets.is_floating_point():
            if bool(((targets >= self.classes) | ((targets < 0) & (targets != IGNORED))).any()):
                return batch  # as it is, so that the loss names the target
            targets = one_hot(targets.clamp(min=0), self.classes) * (targets != IGNORED).unsqueeze(1)
            targets = targets.to(torch.get_default_dtype())
        inputs, share = way.mixed(batch.inputs, _others(batch.inputs), share, draw)
        return replace(batch, inputs=inputs, targets=targets.lerp(_others(targets), 1 - share))


def _others(values: Tensor) -> Tensor:
    return values.roll(len(values) // 2, 0)


def mixing_of(session: Session, samples: Samples | Stream, criterion: Criterion, classes: int) -> BatchMixing | None:
    """The object that mixes the batches of a session; None if nothing does. Raises SettingError for samples that cannot
    be mixed.

    classes: of the data; 0: nobody says how many.
    """
    ways = session.train.mix
    if not ways:
        return None
    nothing = torch.empty(0, dtype=torch.int64)
    inputs, targets = samples.first() if isinstance(samples, Stream) else samples.fetch(nothing)
    for way in ways:
        name = MIXINGS.name_of(type(way))
        if why := way.refusal(samples.input_shape):
            raise SettingError(f"train.mix has {name}: {why}; accepted: mixup")
    if not inputs.is_floating_point():
        raise SettingError(f"train.mix: inputs are whole numbers ({inputs.dtype}), as words are; accepted: no mix")
    if not targets.is_floating_point():
        if targets.dim() > 1:
            raise SettingError("train.mix: samples have several classes each; accepted: one class, or numbers")
        if not classes:
            raise SettingError(f"train.mix: {NO_CLASSES}")
        if not getattr(criterion, "takes_shares", False):
            raise SettingError(
                "train.mix: targets become shares of classes, which this loss does not take; accepted: "
                "loss=cross_entropy, or torch.nn:CrossEntropyLoss"
            )
    return BatchMixing(ways, session.train.seed, classes)
