"""Names of classes and columns, by which parts, sources of a mix, and a run and its data agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast, runtime_checkable

import torch

from volary.data.choosing.part import DataPart
from volary.data.remarks import listed
from volary.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.datasets.stream import Stream
    from volary.data.samples import Samples

S = TypeVar("S", bound="Samples | Stream")


@runtime_checkable
class Renumberable(Protocol):
    """Samples whose classes can get other numbers."""

    def renumbered(self, numbers: Tensor, class_names: tuple[str, ...]) -> Self:
        """The same with class `numbers[i]` instead of i. numbers (classes,): as in `class_names`, for all classes."""
        ...


@runtime_checkable
class Reorderable(Protocol):
    """Samples of a table, whose inputs can come in another order."""

    def reordered(self, columns: tuple[str, ...]) -> Self:
        """The same with its columns in this order."""
        ...


@dataclass(frozen=True)
class DataNames:
    """classes: names in the order of their numbers; empty where the numbers are the names, as 0, 1, 2 are.

    count: of classes; 0 if the data does not say. columns: of a table's inputs. statistics: of each, in the training
    part, the mean and standard deviation that inputs are prepared by, if they are.
    """

    classes: tuple[str, ...] = ()
    count: int = 0
    columns: tuple[str, ...] = ()
    statistics: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, samples: Samples | Stream) -> DataNames:
        """The names that the samples have."""
        names = tuple(getattr(samples, "class_names", ()))
        classes = () if names == _numerals(len(names)) else names
        columns, statistics = (tuple(getattr(samples, name, ())) for name in ("columns", "statistics"))
        return cls(classes, samples.classes or 0, columns, statistics)

    @classmethod
    def read(cls, text: str) -> DataNames:
        """Read names from what `text` gave; no names from nothing."""
        if not text:
            return cls()
        classes, count, columns, *rest = json.loads(text)  # a run of an older version says no statistics
        return cls(tuple(classes), count, tuple(columns), tuple(map(tuple, rest[0] if rest else ())))

    def text(self) -> str:
        """All names as text, to keep with a run."""
        return json.dumps([self.classes, self.count, self.columns, self.statistics])

    @property
    def all_classes(self) -> tuple[str, ...]:
        """The names of all classes; a number is its own."""
        return self.classes or _numerals(self.count)


def agreeing(samples: S, names: DataNames, what: str, other: str) -> S:
    """The samples with the numbers of classes and the order of columns that `names` have, which are those of `other`.

    what: to call the samples in a message. Raises DataError for a class that `other` has not, and for other columns.
    """
    if isinstance(samples, DataPart):
        return cast("S", DataPart(agreeing(samples.whole, names, what, other), samples.numbers))
    mine = DataNames.of(samples)
    if mine.count and names.count:
        samples = _numbered_by(samples, mine, names, what, other)
    if not mine.columns or not names.columns or mine.columns == names.columns:
        return samples
    table: Any = samples
    if set(mine.columns) != set(names.columns) or not isinstance(table, Reorderable):
        raise DataError(
            f"{what}: has the columns {listed(mine.columns)}, {other} {listed(names.columns)}; accepted: the same"
        )
    return cast("S", table.reordered(names.columns))


def alike(parts: Sequence[S], classes: tuple[str, ...], name: str) -> list[S]:
    """The parts of a mix, which is called `name`, with one number for each class.

    classes: the names of all; none: each part must have those of the first one. Raises DataError otherwise.
    """
    known = [DataNames.of(part) for part in parts]
    wanted = DataNames(classes, len(classes)) if classes else DataNames(known[0].classes, known[0].count)
    if not classes:
        for number, mine in enumerate(known):
            if (mine.classes or wanted.classes) and set(mine.all_classes) != set(wanted.all_classes):
                raise DataError(
                    f"{name}: source {number} has the classes {listed(mine.all_classes)}, source 0 "
                    f"{listed(wanted.all_classes)}; accepted: the same, or the setting classes with the names of all"
                )
        if not wanted.classes:
            return list(parts)
    return [
        _numbered_by(part, mine, wanted, f"{name}: source {number}", "mix.classes" if classes else "source 0")
        for number, (part, mine) in enumerate(zip(parts, known, strict=True))
    ]


def renumber(targets: Tensor, numbers: Tensor) -> Tensor:
    """`numbers[i]` for each class i of targets (n, ...); what is no class, as of positions that are filled up, stays.

    numbers (classes,) int64.
    """
    known = (targets >= 0) & (targets < len(numbers))
    return torch.where(known, numbers[torch.where(known, targets, 0)], targets)


def _numbered_by(samples: S, mine: DataNames, names: DataNames, what: str, other: str) -> S:
    if not mine.classes and not names.classes:
        if mine.count > names.count:
            raise DataError(f"{what}: has {mine.count} classes, {other} {names.count}; accepted: no more than these")
        return samples
    called, wanted = mine.all_classes, names.all_classes
    numbers = {name: number for number, name in enumerate(wanted)}
    if unknown := [name for name in called if name not in numbers]:
        raise DataError(
            f"{what}: has the class {listed(unknown[:1])}, which {other} has not; accepted: {listed(wanted)}"
        )
    if called == wanted:
        return samples
    classed: Any = samples
    if isinstance(classed, Renumberable):
        return cast("S", classed.renumbered(torch.tensor([numbers[name] for name in called]), wanted))
    if called == wanted[: len(called)]:
        return samples
    raise DataError(
        f"{what}: numbers its classes {listed(called)}, {other} {listed(wanted)}; accepted: the same numbers"
    )


def _numerals(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))
