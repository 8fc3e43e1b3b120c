"""A metric of what all workers of a user's own loop computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from volary.comm.groups import blocking
from volary.errors import BadInput, RanksDiffer
from volary.network.criteria.classification import IGNORED, classes_last
from volary.network.metrics import ROOM
from volary.train.own.together import total

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.network.metrics._base import Metric

Tensors = Tensor | Sequence[Tensor]


def metric_of(name: str, settings: Mapping[str, Any]) -> Metric:
    """The metric of that file of network/metrics. Raises SettingError for an unknown one, BadInput for its settings."""
    kind: type[Metric] = ROOM.load(name)
    try:
        return kind(**settings)
    except TypeError:
        known = ", ".join(one.name for one in fields(kind)) or "none"
        raise BadInput(f"worker.metric: {name} was given {', '.join(settings)}; its settings: {known}") from None


def measured(metric: Metric, outputs: Tensors, targets: Tensors, group: Group) -> dict[str, float]:
    """The figures, by name, of all ranks' outputs and targets; none if nothing counts. A collective call.

    outputs, targets: of any shapes that `pairs` takes, or lists of such, which may be empty. Raises BadInput and
    RanksDiffer.
    """
    found = pairs(metric, outputs, targets)
    classes = 0 if metric.outputs == "values" or not found else found[0][0].shape[1]
    everyone = blocking.gather_plain([str(metric), classes], group)
    if len({name for name, _ in everyone}) > 1 or len({number for _, number in everyone if number}) > 1:
        listed = ", ".join(f"{name} of {number} classes on rank {rank}" for rank, (name, number) in enumerate(everyone))
        raise RanksDiffer(f"worker.metric: {listed}; accepted: the same on all workers")
    classes = max(number for _, number in everyone)
    if not classes and metric.outputs != "values":
        return {}
    sums = torch.zeros(metric.rows(classes) + 1, dtype=torch.float64)
    for output, target in found:
        count = len(target) if metric.outputs == "values" else (target != IGNORED).sum()
        here = metric.sums(output, target, classes).double()
        sums += torch.cat([here, here.new_tensor([float(count)])]).cpu()
    *whole, counted = total(sums, group).tolist()
    return metric.figures(whole, counted) if counted else {}


def pairs(metric: Metric, outputs: Tensors, targets: Tensors) -> list[tuple[Tensor, Tensor]]:
    """Outputs and targets as `Metric.sums` takes them.

    Scores (n, classes) with targets (n,), and of sequences (n, time, classes) or (n, classes, time) with (n, time);
    values and targets of one shape (n, ...). Raises BadInput for others, and for targets that are none of the classes.
    """
    given = [[one] if isinstance(one, Tensor) else list(one) for one in (outputs, targets)]
    if len(given[0]) != len(given[1]):
        raise BadInput(
            f"worker.metric was given {len(given[0])} outputs and {len(given[1])} targets; accepted: as many"
        )
    found = []
    for output, target in zip(*given, strict=True):
        output, target = output.detach(), target.detach()
        if metric.outputs == "values":
            fits = output.shape == target.shape and output.dim() > 0
            scores = output
        else:
            scores = classes_last(output, tuple(target.shape[1:]))
            fits = scores.dim() > 1 and scores.shape[:-1] == target.shape and not target.is_floating_point()
        if not fits:
            accepted = "values of one shape" if metric.outputs == "values" else "scores (n, classes), classes (n,)"
            raise BadInput(
                f"worker.metric: {metric.name} was given outputs {tuple(output.shape)} and targets "
                f"{tuple(target.shape)} of {target.dtype}; accepted: {accepted}"
            )
        if metric.outputs != "values":
            _refuse_other_classes(metric, target, scores.shape[-1])
        flat = (scores, target.float()) if metric.outputs == "values" else (scores.flatten(0, -2), target.flatten())
        found.append((flat[0].float(), flat[1]))
    return found


def _refuse_other_classes(metric: Metric, target: Tensor, classes: int) -> None:
    other = target[((target < 0) | (target >= classes)) & (target != IGNORED)]
    if len(other):
        raise BadInput(
            f"worker.metric: {metric.name} was given the target {int(other[0])} and {classes} scores; accepted: 0 to "
            f"{classes - 1}, or {IGNORED} for one that counts for nothing"
        )
