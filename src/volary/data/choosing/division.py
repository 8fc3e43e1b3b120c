"""Divides samples into parts by a share and a seed, or by folds, stratified by class if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from volary.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.choosing.part import DataPart
    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples, Split
    from volary.session.data_section import Data


class PartSizes(NamedTuple):
    """Samples of each part."""

    train: int
    validation: int
    test: int


def sizes(data: Data, samples: int) -> PartSizes:
    """How many of so many samples each part has. Raises DataError if one that is asked for has none.

    Imports nothing heavy: it is asked before anything starts.
    """
    test = round(data.split.test * samples)
    start, end = _validation(data, samples, test)
    found = PartSizes(samples - test - (end - start), end - start, test)
    asked = (found.train, "training data"), (found.validation, "validation data")
    for count, what in (*asked, *([(test, "test data")] if data.split.test else [])):
        if not count:
            folds = f"data.folds, {data.folds}," if data.folds else f"data.split.validation, {data.split.validation:g},"
            raise DataError(
                f"data.source: {samples} samples, of which data.split.test, {data.split.test:g}, and {folds} leave "
                f"none as {what}; accepted: shares that leave at least one sample to each part"
            )
    return found


def part_of(samples: Samples | Stream, data: Data, split: Split) -> DataPart:
    """The samples of a part of a source's training part. Raises DataError as `numbers_of`, and for a stream."""
    from volary.data.choosing.part import DataPart
    from volary.data.datasets.mixed import MixedSamples
    from volary.data.datasets.stream import Stream

    by = "data.folds" if data.folds else "data.split"
    if isinstance(samples, Stream):
        raise DataError(
            f"{by} cannot divide {samples.name}, a stream, whose samples have no numbers; accepted: samples that are "
            "read by index"
        )
    if isinstance(samples, MixedSamples) and not samples.each_once:
        raise DataError(
            f"{by} cannot divide a mix with weights, in which a sample has another number in each epoch; accepted: a "
            "mix without weights"
        )
    return DataPart(samples, numbers_of(samples, data, split))


def numbers_of(samples: Samples, data: Data, split: Split) -> Tensor:
    """The numbers (n,) int64, ascending, of the samples in a part: "train", or "test", what an evaluation measures.

    Raises DataError if a part has none, or if classes are asked for where nobody knows them.
    """
    import torch

    from volary.data.choosing.classes import classes_of

    count = len(samples)
    sizes(data, count)
    of_class = classes_of(samples, "data.split.stratify is true") if data.split.stratify else None
    order = _order(count, data.split.seed, of_class)
    test = round(data.split.test * count)
    start, end = _validation(data, count, test)
    if split == "train":
        numbers = torch.cat([order[test:start], order[end:]])
    elif data.split.measured == "test":
        numbers = order[:test]
    else:
        numbers = order[start:end]
    return numbers.sort().values


def _validation(data: Data, samples: int, test: int) -> tuple[int, int]:
    """Where validation data starts and ends, in an order that begins with `test` samples of the test part."""
    if data.folds is None:
        return test, test + round(data.split.validation * samples)
    fold, rest = data.fold or 0, samples - test
    return test + rest * fold // data.folds, test + rest * (fold + 1) // data.folds


def _order(count: int, seed: int, of_class: Tensor | None) -> Tensor:
    """A permutation (count,) that the seed decides. of_class (count,): each stretch of it has its share of classes."""
    import torch

    from volary.data.order import seeded

    shuffled = torch.randperm(count, generator=seeded(seed, "parts"))
    if of_class is None:
        return shuffled
    place = torch.empty(count, dtype=torch.float64)
    for one in of_class.unique():
        mine = shuffled[of_class[shuffled] == one]
        place[mine] = (torch.arange(len(mine), dtype=torch.float64) + 0.5) / len(mine)
    return shuffled[place[shuffled].argsort(stable=True)]
