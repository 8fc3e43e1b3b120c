"""Tables as text: a header, and one sample a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from volary.data.samples import BOTH
from volary.data.storage.place import located
from volary.data.tables.csv_file import ACCEPTED, CsvFile
from volary.data.tables.missing import SETTINGS
from volary.errors import SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from volary.data.data_names import DataNames
    from volary.data.memory import InMemory
    from volary.data.samples import Samples, Split
    from volary.data.tables.table_rows import Statistics, TableRows
    from volary.data.unlabelled.unlabelled import Unlabelled


@dataclass(frozen=True, kw_only=True)
class CsvTable:
    """Inputs (columns,) float32: (value - mean) / standard deviation of the training part. Kept in memory."""

    train: Location  # the table of the training part
    test: Location | None = None  # the table of the validation data, with the same columns in any order
    target: str  # the column that is to be predicted
    columns: tuple[str, ...] = ()  # the columns of inputs, all numbers; none: all of the training part but the target
    kind: str = "class"  # of the target; class: numbers from 0 or names, number: any number
    weight: str = ""  # a column of train that is no input, but how often each row comes: data.sampling.by
    separator: str = ","  # one character between two values
    standardise: bool = True  # whether columns get mean 0 and standard deviation 1 over the training part
    missing: str = "refuse"  # refuse a missing value, skip its row, or take the mean of the training part's column

    def __post_init__(self) -> None:
        for name in ("train", "test", "target"):
            if getattr(self, name) == "":
                raise SettingError(f"{name} is empty; accepted: {'a column' if name == 'target' else ACCEPTED}")
        if self.kind not in ("class", "number"):
            raise SettingError(f"kind is {self.kind!r}; accepted: class, number")
        if len(self.separator) != 1 or self.separator in '"\r\n':
            raise SettingError(f"separator is {self.separator!r}; accepted: one character, no quote and no line end")
        if self.weight and self.weight in (self.target, *self.columns):
            raise SettingError(f"weight is {self.weight!r}, the target or an input; accepted: another column, or none")
        if self.target in self.columns:
            raise SettingError(f"columns has the target {self.target!r}; accepted: other columns")
        if len(set(self.columns)) < len(self.columns):
            raise SettingError(f"columns is {', '.join(self.columns)}; accepted: each column once")
        if self.missing not in SETTINGS:
            raise SettingError(f"missing is {self.missing!r}; accepted: {', '.join(SETTINGS)}")

    def check(self, parts: Sequence[Split] = BOTH) -> None:
        """Look whether the tables have the columns."""
        self._file(parts[-1])

    def count(self, split: Split) -> None:
        """Unknown before the table has been read."""

    def open(self, split: Split) -> InMemory:
        """Read the table, and for validation data the training part's, too. Raises DataError with the line."""
        from volary.data.tables.missing import settled

        read = [self._read(name) for name in dict.fromkeys(("train", split))]
        tables = [settled(table, read[0], self.missing) for table in read]
        return self._samples(tables[-1], tables[0], tables[0])

    def open_divided(self, learnt: Callable[[Samples], Tensor]) -> InMemory:
        """Read the table of the training part. Raises DataError with the line."""
        from volary.data.tables.missing import settled

        read = self._read("train")
        whole = settled(read, read, self.missing)
        if self.missing == "skip":
            read = whole
        training = read.only(learnt(self._samples(whole, whole, whole)).numpy())
        table = settled(read, training, self.missing)
        return self._samples(table, settled(training, training, self.missing), whole)

    def _samples(self, table: TableRows, training: TableRows, labelled: TableRows) -> InMemory:
        """Samples of a table. training: the rows whose means are taken off. labelled: those that have all classes."""
        import torch

        from volary.data.formats.labels import Labels
        from volary.data.formats.numbers import as_float32
        from volary.data.memory import InMemory
        from volary.data.tables.table_rows import statistics_of

        statistics = statistics_of(training.inputs) if self._by_statistics else ()
        inputs = torch.from_numpy(self._prepared(table, statistics))
        weights = None if table.weights is None else torch.tensor(table.weights)
        if table.numbers is not None:
            targets = torch.from_numpy(as_float32(table.numbers, table.target_place_of)).unsqueeze(1)
            return InMemory(
                inputs,
                targets,
                remarks=table.remarks,
                columns=table.columns,
                weights=weights,
                statistics=statistics,
            )
        labels = Labels(labelled.texts, str(self.train), labelled.name_of)
        targets = torch.from_numpy(labels.numbered(table.texts, table.name_of))
        return InMemory(
            inputs,
            targets,
            labels.count,
            remarks=table.remarks,
            columns=table.columns,
            class_names=labels.names,
            weights=weights,
            statistics=statistics,
        )

    def unlabelled(self, given: Path, known: DataNames) -> Unlabelled:
        """A table with these columns, and others that are not read."""
        import torch

        from volary.data.data_names import DataNames
        from volary.data.memory import InMemory
        from volary.data.tables.missing import settled
        from volary.data.tables.table_rows import filled
        from volary.data.unlabelled.unlabelled import Unlabelled

        if not known.columns or (self._by_statistics and not known.statistics):
            known = DataNames.of(self.open("train"))
        lenient = self.missing == "mean"
        table = CsvFile.at(given, self.separator).read(None, known.columns, numeric=False, lenient=lenient)
        table = filled(table, known.statistics) if lenient else table
        inputs = torch.from_numpy(self._prepared(settled(table, table, "refuse"), known.statistics))
        return Unlabelled(InMemory(inputs, torch.zeros(len(inputs), dtype=torch.int64), remarks=table.remarks))

    @property
    def _by_statistics(self) -> bool:
        """Whether inputs are prepared by means and deviations of the training part."""
        return self.standardise or self.missing == "mean"

    def _prepared(self, table: TableRows, statistics: Statistics) -> NDArray[Any]:
        """The table's inputs as the network gets them."""
        from volary.data.formats.numbers import as_float32
        from volary.data.tables.table_rows import standardised

        values = standardised(table.inputs, statistics) if self.standardise else table.inputs
        return as_float32(values, table.place_of)

    def _read(self, split: Split) -> TableRows:
        file, columns = self._file(split)
        numeric, lenient = self.kind == "number", self.missing != "refuse"
        if not self.weight or split == "test":
            return file.read(self.target, columns, numeric=numeric, lenient=lenient)
        file.inputs(self.target, (self.weight,))
        return file.read(self.target, (*columns, self.weight), numeric=numeric, lenient=lenient).weighted()

    def _file(self, split: Split) -> tuple[CsvFile, tuple[str, ...]]:
        """The part's table and the columns of inputs, which are those of the training part, in its order."""
        file = CsvFile.at(located(self.train), self.separator)
        columns = file.inputs(self.target, self.columns, self.weight)
        if split == "test":
            assert self.test is not None, "the session refuses it"
            file = CsvFile.at(located(self.test), self.separator)
            file.inputs(self.target, columns)
        return file, columns


SOURCE = CsvTable
