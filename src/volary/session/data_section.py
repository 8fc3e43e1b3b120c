"""The section `data`: where samples come from, which of them are learnt from, and how many make a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from volary.errors import SettingError
from volary.session.checks import WHOLE, require
from volary.session.reading.choice import Choice
from volary.session.reading.settle import settle
from volary.session.values.per_class import PerClass, numbers_of
from volary.session.values.size import Size

NOTHING = Size(0)


@dataclass(frozen=True, kw_only=True)
class Cache:
    """Keeps what was read from files or a store: in memory that a machine's workers share, and on its disk."""

    memory: Size = NOTHING  # of a machine, for all its workers together; 0: none
    disk: Size = NOTHING  # of the folder `path`, for all data sets that are cached there; 0: none
    path: Path | None = None  # a folder on a local disk; it stays for later runs

    def __post_init__(self) -> None:
        settle(self)
        if self.disk.count and self.path is None:
            raise SettingError("path is missing; accepted with disk: a folder on a local disk")


@dataclass(frozen=True, kw_only=True)
class DataSplit:
    """Divides the source's training part, for a source that comes as one: what is left over is learnt from."""

    validation: float = 0.0  # share of the samples that is validation data; 0, without folds: the source's own parts
    test: float = 0.0  # share that neither training nor validation sees; `measured` says when it is measured
    stratify: bool = False  # each part has each class's share of the whole
    seed: int = 0  # of which sample is in which part; train.seed does not move them
    measured: Literal["validation", "test"] = "validation"  # the part that evaluations measure

    def __post_init__(self) -> None:
        settle(self)
        for name, value in (("validation", self.validation), ("test", self.test)):
            require(0 <= value < 1, name, value, "0 or more, below 1")
        left = f"less than 1 together with test, {self.test:g}"
        require(self.validation + self.test < 1, "validation", self.validation, left)
        require(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2**63 - 1")
        require(self.measured != "test" or self.test > 0, "test", self.test, "above 0, as measured is 'test'")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How often samples come. Drawn ones come with replacement, as many an epoch as there are samples."""

    by: Literal["order", "class", "weight"] = "order"  # order: each once an epoch; class: drawn, each class as often as
    # others; weight: drawn, each by its own weight, which the data says
    classes: PerClass = ()  # with class: how often each class comes, compared to the others: in order, or by name

    def __post_init__(self) -> None:
        settle(self)
        if self.classes and self.by != "class":
            raise SettingError(f"classes is given, and by is {self.by!r}; accepted: with it by: class")
        for value in numbers_of(self.classes):
            require(0 <= value < inf, "classes", value, "0 or more for each class")
        all_given = isinstance(self.classes, tuple) and self.classes  # by name others have 1
        require(not all_given or any(numbers_of(self.classes)), "classes", 0, "above 0 for one class or more")


@dataclass(frozen=True, kw_only=True)
class Data:
    """Training data: where samples come from, and how many make a step."""

    source: Annotated[Any, Choice("volary.data.sources", user=True)]  # where samples come from
    batch_size: int = 64  # samples per step, over all workers; where batches grow, of the first
    batch: Annotated[Any, Choice("volary.train.batches")] = "fixed"  # whether batches grow in the course of a run
    shuffle: bool = True  # a new order each epoch, given by train.seed; false: the source's order
    split: DataSplit = field(default_factory=DataSplit)  # parts of a source that comes as one
    folds: int | None = None  # equal parts for cross-validation: each in turn is validation data, see `fold`
    fold: int | None = None  # which of the folds is, from 0; none: the first, and `volary sweep` trains all
    sampling: Sampling = field(default_factory=Sampling)  # how often samples come
    pad: bool = False  # samples may differ in size: those that are smaller than others of their batch are filled up
    cache: Cache = field(default_factory=Cache)  # keeps what was read from files or a store
    skip_corrupt: float = (
        0.01  # share of an epoch's samples that may be unreadable and are skipped; 0: the first ends all
    )

    def __post_init__(self) -> None:
        settle(self)
        require(self.batch_size >= 1, "batch_size", self.batch_size, WHOLE)
        require(0 <= self.skip_corrupt <= 1, "skip_corrupt", self.skip_corrupt, "0 to 1")
        largest, accepted = self.batch.largest(self.batch_size), f"at least batch_size, {self.batch_size}"
        require(largest >= self.batch_size, "batch.most", largest, accepted)
        by = self.sampling.by
        require(self.shuffle or by == "order", "sampling.by", by, "order, as shuffle is false and draws nothing")
        self._check_parts()

    @property
    def divided(self) -> bool:
        """Whether training and validation data are both taken from the source's training part."""
        return self.folds is not None or self.split.validation > 0

    def _check_parts(self) -> None:
        """Whether it is clear what is learnt from, and what is measured."""
        split, folds, fold = self.split, self.folds, self.fold
        if folds is not None:
            require(folds >= 2, "folds", folds, "2 or more")
            instead = f"0, as a fold of {folds} is validation data"
            require(split.validation == 0, "split.validation", split.validation, instead)
        if fold is not None and folds is None:
            raise SettingError(f"fold is {fold}, and folds is not given; accepted: with folds, their number")
        if fold is not None and folds is not None:
            require(0 <= fold < folds, "fold", fold, f"0 to {folds - 1}, as folds is {folds}")
        if not self.divided and split != DataSplit():
            raise SettingError("split takes no validation data; accepted: split.validation above 0, or folds")
        for one in _sources(self.source):
            given = getattr(one, "test", "")
            if given is None and not self.divided:
                raise SettingError("source.test is missing; accepted: it, or split.validation, or folds")
            if given and self.divided and vars(type(one)).get("test", "") is None:
                by = "split.validation" if folds is None else "folds"
                raise SettingError(f"source.test and {by} are both given; accepted: one of them")


def _sources(source: Any) -> Iterator[Any]:
    """Yield the source, or those that it mixes."""
    for one in getattr(source, "sources", ()):
        yield from _sources(one)
    yield source
