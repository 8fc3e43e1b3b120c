"""The settings that sources of tables in Arrow's form share: encoded images, or columns of numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from volary.data.formats.files import existing_file, matching
from volary.data.loading.image_settings import ImageSettings
from volary.data.remarks import not_read
from volary.data.tables.arrow_file import ACCEPTED, SUFFIXES
from volary.data.tables.missing import SETTINGS, settled
from volary.errors import DataError, SettingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from volary.data.data_names import DataNames
    from volary.data.samples import Samples, Split
    from volary.data.storage.place import Place
    from volary.data.tables.arrow_part import ArrowPart
    from volary.data.unlabelled.unlabelled import Unlabelled

    _Labelled = tuple[list[str], Callable[[int], str]]  # what rows say, and what to call a row in a message


class ArrowFiles(NamedTuple):
    """The files of a part, in order. where: what to call all of them. remarks: on what else is there."""

    where: str
    paths: Sequence[Place]
    remarks: tuple[str, ...] = ()

    @classmethod
    def at(cls, path: Place) -> ArrowFiles:
        """A file, or all of a folder. Raises DataError if there is none."""
        if not path.is_dir():
            return cls(str(path), [existing_file(path, ACCEPTED)])
        inside = matching(path, "*")
        files = [one for one in inside if one.suffix.lower() in SUFFIXES and one.name[0] != "."]
        if not files:
            raise DataError(f"{path}: has no {', '.join(SUFFIXES)} in it; accepted: {ACCEPTED}")
        return cls(str(path), files, not_read(path, "file", [one.name for one in inside if one not in files]))


@dataclass(frozen=True, kw_only=True)
class ArrowSettings(ImageSettings, ABC):
    """Columns of a table become images as `images` gives them, or numbers (columns,) in float32."""

    inputs: tuple[str, ...] = ("image",)  # one column of encoded images (or of {bytes, path}), or columns of numbers
    target: str = "label"  # the column to predict
    kind: str = "class"  # of the target; class: numbers from 0 or names, number: any number
    missing: str = "refuse"  # refuse a missing number, skip its row, or take the mean of the training part's column

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.inputs or not self.target:
            raise SettingError(f"inputs is {self.inputs} and target {self.target!r}; accepted: names of columns")
        if len(set(self.inputs)) < len(self.inputs):
            raise SettingError(f"inputs is {', '.join(self.inputs)}; accepted: each column once")
        if self.kind not in ("class", "number"):
            raise SettingError(f"kind is {self.kind!r}; accepted: class, number")
        if self.missing not in SETTINGS:
            raise SettingError(f"missing is {self.missing!r}; accepted: {', '.join(SETTINGS)}")

    @abstractmethod
    def files_of(self, split: Split) -> ArrowFiles:
        """The files of a part. Raises DataError if they cannot be found."""

    def open(self, split: Split) -> Samples:
        """Read the columns. Raises DataError if one is missing or of a type that cannot be used."""
        import torch

        from volary.data.data_names import DataNames, agreeing
        from volary.data.memory import InMemory
        from volary.data.records.in_memory import InHand
        from volary.data.tables.table_rows import statistics_of

        # what is missing in the training part is refused when that is opened
        first = self._part(self.files_of("train"), self.inputs if split == "train" or self.missing != "refuse" else ())
        part = first if split == "train" else self._part(self.files_of(split), self.inputs)
        if self.kind == "number":
            return self._with_numbers(first, part, split)
        wanted = DataNames(names := first.class_names(), len(names))
        if (images := part.images()) is not None:
            classes = self._classes(first, part, (first.labels(), first.name_of), (part.labels(), part.name_of))
            records = InHand(lambda index: memoryview(images[index].as_buffer()), len(part), part.name_of)
            samples = self.decoded(records, torch.from_numpy(classes.numbers), classes.total, split)
            samples.remarks, samples.class_names = part.remarks, classes.names
            return agreeing(samples, wanted, part.where, first.where)
        tables = [one.table() for one in dict.fromkeys((first, part))]
        tables = [settled(table, tables[0], self.missing) for table in tables]
        training, table = tables[0], tables[-1]
        classes = self._classes(first, part, (training.texts, training.name_of), (table.texts, table.name_of))
        rows = InMemory(
            torch.from_numpy(table.inputs),
            torch.from_numpy(classes.numbers),
            classes.total,
            remarks=table.remarks,
            columns=self.inputs,
            class_names=classes.names,
            statistics=statistics_of(training.inputs) if self.missing == "mean" else (),
        )
        return agreeing(rows, wanted, part.where, first.where)

    def _with_numbers(self, first: ArrowPart, part: ArrowPart, split: Split) -> Samples:
        """Samples of the part whose targets are numbers. first: the training part."""
        import torch

        from volary.data.formats.numbers import refuse_not_finite
        from volary.data.memory import InMemory
        from volary.data.records.in_memory import InHand
        from volary.data.tables.table_rows import statistics_of

        if (images := part.images()) is not None:
            targets = part.targets()
            refuse_not_finite(targets, lambda row: f"{part.name_of(row)}: {self.target}")
            records = InHand(lambda index: memoryview(images[index].as_buffer()), len(part), part.name_of)
            samples = self.decoded(records, torch.from_numpy(targets).unsqueeze(1), None, split)
            samples.remarks = part.remarks
            return samples
        tables = [one.table(numeric=True) for one in dict.fromkeys((first, part))]
        tables = [settled(one, tables[0], self.missing) for one in tables]
        training, table = tables[0], tables[-1]
        assert table.numbers is not None
        return InMemory(
            torch.from_numpy(table.inputs),
            torch.from_numpy(table.numbers).unsqueeze(1),
            remarks=table.remarks,
            columns=self.inputs,
            statistics=statistics_of(training.inputs) if self.missing == "mean" else (),
        )

    def unlabelled(self, given: Path, known: DataNames) -> Unlabelled:
        """A file of the same columns, or a folder of them; for images also image files."""
        import torch

        from volary.data.data_names import DataNames
        from volary.data.memory import InMemory
        from volary.data.records.in_memory import InHand
        from volary.data.tables.arrow_part import ArrowPart
        from volary.data.tables.table_rows import filled
        from volary.data.unlabelled.unlabelled import Unlabelled

        tables = [given, *given.glob("*")] if given.is_dir() else [given]
        if not any(one.suffix.lower() in SUFFIXES for one in tables):
            return super().unlabelled(given, known)
        part = ArrowPart(str(given), ArrowFiles.at(given).paths, known.columns or self.inputs, "")
        nobody = torch.zeros(len(part), dtype=torch.int64)
        if (images := part.images()) is not None:
            records = InHand(lambda index: memoryview(images[index].as_buffer()), len(part), part.name_of)
            return Unlabelled(replace(self, cache_mb=0).decoded(records, nobody, None, "test"))
        table = part.table()
        if self.missing == "mean":
            table = filled(table, known.statistics or DataNames.of(self.open("train")).statistics)
        table = settled(table, table, "refuse")
        return Unlabelled(InMemory(torch.from_numpy(table.inputs), nobody, remarks=table.remarks))

    def _classes(self, first: ArrowPart, part: ArrowPart, training: _Labelled, rows: _Labelled) -> _Classes:
        """The classes of the part's rows. first, training: the training part, and what its labels say."""
        from volary.data.formats.labels import Labels

        labels = Labels(training[0], first.where, training[1])
        if labels.names or not (names := first.class_names()):
            return _Classes(labels.numbered(*rows), labels.count, labels.names)
        # numbers that the files have names for: those of validation data are by its own
        names = part.class_names() or names
        numerals = [str(number) for number in range(len(names))]
        return _Classes(Labels(numerals, "its metadata", first.name_of).numbered(*rows), len(names), names)

    def _part(self, files: ArrowFiles, inputs: tuple[str, ...]) -> ArrowPart:
        from volary.data.tables.arrow_part import ArrowPart

        return ArrowPart(files.where, files.paths, inputs, self.target, files.remarks)


class _Classes(NamedTuple):
    """The class of each row, the number of classes, and their names."""

    numbers: NDArray[np.int64]
    total: int
    names: tuple[str, ...]
