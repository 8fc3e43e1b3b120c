"""The samples of the validation data that a run's network is worst at, each with a small picture if it is an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy

from volary.data.data_names import DataNames
from volary.data.datasets.stream import Stream
from volary.data.looking.pictures import link_of_input
from volary.data.sample_names import file_of
from volary.data.skipping import Skipping
from volary.errors import BadInput, SettingError
from volary.errors.raised import raised
from volary.network.criteria.classification import Classification, classes_last
from volary.network.criteria.fit import main_output
from volary.network.criteria.squared_error import SquaredError
from volary.train.afterwards import load_model
from volary.train.data.opening import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from volary.data.samples import Samples
    from volary.run.directory import RunDirectory
    from volary.session.spec import Session
    from volary.train.model import Model

MOST = 200
_LOSS = 1  # the column of a measured sample


@dataclass(frozen=True)
class WorstSample:
    """A sample by its number in the validation data, and its file if it has one. target: its class, or its number.

    answer: what the network says instead, with probability `share`; of numbers that is None. link: a picture, as
    `data:`; empty if it is no image.
    """

    number: int
    name: str
    target: str
    answer: str
    share: float | None
    loss: float
    link: str


def worst_of_run(
    directory: RunDirectory, step: int, count: int, session: Session | None = None, *, average: bool = False
) -> list[WorstSample]:
    """The validation samples that the checkpoint of `step` is worst at; see `worst_samples` and `load_model`, whose
    arguments these are.
    """
    return worst_samples(load_model(directory, step, session, average=average), count)


def worst_samples(model: Model, count: int) -> list[WorstSample]:
    """The `count` samples with the greatest losses, the worst first; those that cannot be read are left out.

    Raises BadInput for data or a loss that has none for each sample: streams, sequences, losses of the user's own.
    """
    if not 1 <= count <= MOST:
        raise BadInput(f"--worst is {count}; accepted: 1 to {MOST}")
    samples = readable(model.session, model.validation, lambda *_: None)
    if isinstance(samples, Stream) or not isinstance(model.criterion, (Classification, SquaredError)):
        raise BadInput(
            "--worst: the data is a stream, or the loss is your own; accepted: samples that are read by index"
        )
    measured = torch.cat([_measured(model, samples, some) for some in _batches(model, samples)])
    order = measured[:, _LOSS].argsort(descending=True, stable=True)[:count]
    names, found = DataNames.of(model.samples).all_classes, list[WorstSample]()
    for number, loss, answer, share in measured[order].tolist():
        inputs, targets = samples.fetch(torch.tensor([int(number)]))
        if isinstance(model.criterion, Classification):
            target, answered = names[int(targets[0])], names[int(answer)]
        else:
            target, answered = f"{targets[0].item():.6g}", f"{answer:.6g}"
        chance = share if isinstance(model.criterion, Classification) else None
        name = file_of(samples, int(number))
        found.append(WorstSample(int(number), name, target, answered, chance, loss, link_of_input(inputs[0])))
    return found


def _batches(model: Model, samples: Samples | Skipping) -> Sequence[Tensor]:
    """Numbers of samples, so many at once as a step has."""
    return list(torch.arange(len(samples)).split(model.session.data.batch_size))


@torch.no_grad()
def _measured(model: Model, samples: Samples | Skipping, numbers: Tensor) -> Tensor:
    """A row (number, loss, answer, share) for each of the samples `numbers` (n,) that can be read, float64 (m, 4)."""
    inputs, targets = samples.fetch(numbers)
    if isinstance(samples, Skipping):
        numbers = samples.readable(numbers)
    if not len(numbers):
        return torch.zeros(0, 4, dtype=torch.float64)
    try:
        output = main_output(model.module(inputs))
    except Exception as error:  # whatever the user's code raises
        raise SettingError(f"the network cannot be measured on this data: {raised(error).error}") from error
    if targets.dim() > 1 and (targets.shape[1:].numel() > 1 or not targets.is_floating_point()):
        raise BadInput("--worst: samples have several targets each; accepted: one class, or one number")
    if isinstance(model.criterion, Classification):
        scores = classes_last(output, ()).float()
        losses = cross_entropy(scores, targets, reduction="none")
        shares, answers = scores.softmax(1).max(1)
    else:
        answers = output.flatten().float()
        losses, shares = (answers - targets.flatten()) ** 2, torch.zeros(len(answers))
    return torch.stack([one.double() for one in (numbers, losses, answers, shares)], 1)
