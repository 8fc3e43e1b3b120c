"""Tables as text: a header, and one sample a line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.data.formats.files import existing_file
from volary.data.storage.place import located
from volary.errors import DataError, SettingError
from volary.session.values.url import Location

if TYPE_CHECKING:
    from torch import Tensor

    from volary.data.memory import InMemory
    from volary.data.samples import Split
    from volary.data.storage.place import Place

_ACCEPTED = "a table with a header, as text in UTF-8"


@dataclass(frozen=True, kw_only=True)
class CsvTable:
    """Inputs (columns,) float32: (value - mean) / standard deviation of the training part. Kept in memory."""

    train: Location  # the table of the training part
    test: Location  # the table of the validation data, with the same columns
    target: str  # the column that is to be predicted
    columns: tuple[str, ...] = ()  # the columns of inputs, all numbers; none: all but the target
    kind: str = "class"  # of the target; class: numbers from 0 or names, number: any number
    separator: str = ","  # one character between two values
    standardise: bool = True  # whether columns get mean 0 and standard deviation 1 over the training part

    def __post_init__(self) -> None:
        for name in ("train", "test", "target"):
            if not getattr(self, name):
                raise SettingError(f"{name} is empty; accepted: {'a column' if name == 'target' else _ACCEPTED}")
        if self.kind not in ("class", "number"):
            raise SettingError(f"kind is {self.kind!r}; accepted: class, number")
        if len(self.separator) != 1:
            raise SettingError(f"separator is {self.separator!r}; accepted: one character")
        if self.target in self.columns:
            raise SettingError(f"columns has the target {self.target!r}; accepted: other columns")

    def check(self) -> None:
        """Look whether both tables have the columns."""
        for path in (self.train, self.test):
            with existing_file(located(path), _ACCEPTED).open(encoding="utf-8", errors="replace", newline="") as file:
                self._places(located(path), next(csv.reader(file, delimiter=self.separator), []))

    def count(self, split: Split) -> None:
        """Unknown before the table has been read."""

    def open(self, split: Split) -> InMemory:
        """Read the table, and for validation data the training part's, too. Raises DataError with the line."""
        import torch

        from volary.data.formats.labels import Labels
        from volary.data.memory import InMemory

        training, said = self._read(located(self.train))
        inputs, texts = (training, said) if split == "train" else self._read(located(self.test))
        if self.standardise:
            spread = training.std(0, correction=0)
            inputs = (inputs - training.mean(0)) / torch.where(spread > 0, spread, 1.0)
        path = located(getattr(self, split))
        if self.kind == "number":
            numbers = [_number(path, place, self.target, text) for place, text in enumerate(texts, start=2)]
            return InMemory(inputs.float(), torch.tensor(numbers, dtype=torch.float32).unsqueeze(1))
        labels = Labels(said, str(self.train))
        return InMemory(inputs.float(), torch.from_numpy(labels.numbered(texts, str(path))), labels.count)

    def _read(self, path: Place) -> tuple[Tensor, list[str]]:
        """Inputs (n, columns) float64, and the targets as they are written."""
        import torch

        rows: list[list[float]] = []
        texts: list[str] = []
        try:
            for line, values, target in self._lines(existing_file(path, _ACCEPTED)):
                rows.append([_number(path, line, name, text) for name, text in values])
                texts.append(target)
        except UnicodeDecodeError as problem:
            raise DataError(f"{path}: byte {problem.start} is not UTF-8; accepted: {_ACCEPTED}") from problem
        if not rows:
            raise DataError(f"{path}: empty: it has a header alone; accepted: at least one sample")
        return torch.tensor(rows, dtype=torch.float64), texts

    def _lines(self, path: Place) -> Iterator[tuple[int, list[tuple[str, str]], str]]:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, delimiter=self.separator)
            header = next(reader)
            places, target = self._places(path, header)
            for row in reader:
                if row and len(row) != len(header):
                    raise DataError(f"{path}:{reader.line_num}: has {len(row)} values; its header has {len(header)}")
                if row:
                    yield reader.line_num, [(header[place], row[place]) for place in places], row[target].strip()

    def _places(self, path: Place, header: list[str]) -> tuple[list[int], int]:
        for name in (self.target, *self.columns):
            if name not in header:
                raise DataError(f"{path}: has no column {name!r}; it has {', '.join(header) or 'none'}")
        wanted = self.columns or [name for name in header if name != self.target]
        if not wanted:
            raise DataError(f"{path}: has no column beside {self.target!r}; accepted: at least one")
        return [header.index(name) for name in wanted], header.index(self.target)


def _number(path: Place, line: int, column: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{path}:{line}: {column} is {text!r}; accepted: a number") from None


SOURCE = CsvTable
