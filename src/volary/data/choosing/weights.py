"""Weights of samples, by which they are drawn: by class, or as the data says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from volary.data.choosing.classes import classes_of
from volary.data.data_names import DataNames
from volary.data.datasets.stream import Stream
from volary.errors import DataError, SettingError
from volary.session.values.per_class import in_order

if TYPE_CHECKING:
    from volary.data.samples import Samples
    from volary.session.data_section import Sampling
    from volary.session.values.per_class import PerClass


def weights_of(samples: Samples | Stream, sampling: Sampling) -> Tensor | None:
    """The weight (n,) of each sample, float64; None if each comes once an epoch.

    Raises SettingError for a stream and for weights of another number of classes, DataError if weights are not known.
    """
    if sampling.by == "order":
        return None
    if isinstance(samples, Stream):
        raise SettingError(
            f"data.sampling.by is {sampling.by}, and {samples.name} is a stream, of which nothing can be drawn; "
            "accepted: order, or samples that are read by index"
        )
    return _by_class(samples, sampling.classes) if sampling.by == "class" else _own(samples)


def _by_class(samples: Samples, given: PerClass) -> Tensor:
    """Each class as often as is given, whatever its number of samples."""
    found = classes_of(samples, "data.sampling.by is class")
    count = found.bincount(minlength=samples.classes or 0)
    wanted = in_order(given, DataNames.of(samples).all_classes, "data.sampling.classes")
    if wanted and len(wanted) != len(count):
        raise SettingError(
            f"data.sampling.classes has {len(wanted)} numbers; accepted: {len(count)}, one a class, in their order"
        )
    share = torch.tensor(wanted or [1.0] * len(count), dtype=torch.float64)
    weights = (share / count.clamp(min=1))[found]
    if not weights.any():
        raise SettingError("data.sampling.classes gives 0 to all classes that have samples; accepted: above 0 for one")
    return weights


def _own(samples: Samples) -> Tensor:
    """The weights that the data itself gives."""
    declared = getattr(samples, "weights", None)
    if declared is None:
        raise DataError(
            "data.sampling.by is weight, and the data says no weights; accepted: csv with the setting `weight`, "
            "the name of a column, or a data set of your own with `weights`, a number for each sample"
        )
    weights = torch.as_tensor(declared, dtype=torch.float64)
    if weights.shape != (len(samples),):
        raise DataError(f"weights of the data are {tuple(weights.shape)}; accepted: ({len(samples)},), one a sample")
    wrong = ~((weights >= 0) & weights.isfinite())
    if wrong.any():
        row = int(wrong.int().argmax())
        raise DataError(f"the weight of sample {row} is {float(weights[row]):g}; accepted: a number, 0 or more")
    if not weights.any():
        raise DataError("the weights of all samples are 0; accepted: above 0 for one sample or more")
    return weights
