"""Comma-separated values (RFC 4180), with a header, as numbers and labels by the names of their columns."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING

from volary.data.formats.missing_words import MISSING
from volary.data.formats.text_file import not_utf8, open_text
from volary.data.remarks import listed, not_read
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.storage.place import Place
    from volary.data.tables.table_rows import TableRows

ACCEPTED = "a table with a header, as text in UTF-8"
_SEPARATORS = ",;\t|"


@dataclass(frozen=True)
class CsvFile:
    """A table whose header has been read. header: names, without the blanks around them."""

    path: Place
    separator: str
    header: tuple[str, ...]

    @classmethod
    def at(cls, path: Place, separator: str) -> CsvFile:
        """Read the header. Raises DataError if there is none."""
        _, names = next(_rows(path, separator), (1, []))
        return cls(path, separator, tuple(name.strip() for name in names))

    def inputs(self, target: str, columns: Sequence[str], beside: str = "") -> tuple[str, ...]:
        """The columns of inputs: these, or else all but the target and the one `beside` it.

        Raises DataError for one that is not there, has no name, or whose name another one has, too.
        """
        wanted = tuple(columns) or tuple(
            name for name in self.header if name != target and (name != beside or not beside)
        )
        self._refuse_missing((target, *wanted))
        if not wanted:
            raise DataError(f"{self.path}: has no column beside {target!r}; accepted: at least one")
        if "" in wanted:
            number = self.header.index("") + 1
            raise DataError(
                f"{self.path}: column {number} of the header has no name; accepted: a name for each column, or the "
                "setting columns with those that are inputs"
            )
        return wanted

    def read(self, target: str | None, columns: Sequence[str], *, numeric: bool, lenient: bool) -> TableRows:
        """The rows. target: None for a table without. numeric: whether it is a number. lenient: whether values may be
        missing. Raises DataError for a row that cannot be read, and for a column that is not there.
        """
        import numpy as np

        from volary.data.tables.table_rows import TableRows

        wanted = (*columns, columns[0] if target is None else target)  # one more than inputs: what picks, picks a tuple
        self._refuse_missing(wanted)
        values, texts, lines = array("d"), list[str](), array("q")
        numbers = wanted if numeric else tuple(columns)
        picked = itemgetter(*(self.header.index(name) for name in wanted))
        for line, row in islice(_rows(self.path, self.separator), 1, None):
            if len(row) != len(self.header):
                raise DataError(f"{self.path}:{line}: has {len(row)} values; its header has {len(self.header)}")
            cells = list(picked(row))
            if not numeric:
                texts.append(cells.pop().strip())
            try:
                if "_" in "".join(cells):  # Python's float takes 1_0 for 10
                    raise ValueError
                values.extend(list(map(float, cells)))
            except ValueError:
                named = zip(numbers, cells, strict=True)
                values.extend([self._number(line, name, text, lenient) for name, text in named])
            lines.append(line)
        if not lines:
            raise DataError(f"{self.path}: empty: it has a header alone; accepted: at least one sample")
        rows = np.frombuffer(values, dtype=np.float64).reshape(len(lines), len(numbers))
        left_out = [name for name in self.header if name not in wanted]
        return TableRows(
            path=str(self.path),
            columns=tuple(columns),
            target=target or "",
            inputs=rows[:, : len(columns)],
            texts=[] if target is None else texts,
            numbers=rows[:, -1] if numeric else None,
            rows=np.frombuffer(lines, dtype=np.int64),
            row_name=lambda line: f"{self.path}:{line}",
            remarks=not_read(self.path, "column", left_out),
        )

    def _number(self, line: int, column: str, text: str, lenient: bool) -> float:
        missing = text.strip() in MISSING
        if missing and lenient:
            return math.nan
        try:
            if "_" not in text:
                return float(text)
        except ValueError:
            pass
        says, hint = (f"missing ({text!r})", ", or the setting missing: skip, mean") if missing else (repr(text), "")
        raise DataError(f"{self.path}:{line}: {column} is {says}; accepted: a number, as 1.5{hint}")

    def _refuse_missing(self, names: Sequence[str]) -> None:
        for name in names:
            if self.header.count(name) != 1:
                raise self._not_one(name)

    def _not_one(self, name: str) -> DataError:
        """Why a column is not the one that has this name."""
        if count := self.header.count(name):
            return DataError(f"{self.path}: has {count} columns {name!r}; accepted: names that differ")
        only = self.header[0] if len(self.header) == 1 else ""
        if others := [separator for separator in _SEPARATORS if separator in only]:
            return DataError(
                f"{self.path}: its header has no {self.separator!r} between names, but {others[0]!r}; accepted: "
                f"separator: {others[0]!r}"
            )
        return DataError(f"{self.path}: has no column {name!r}; it has {listed(self.header) or 'none'}")


def _rows(path: Place, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Line and values of each row, the header's first; blank lines are left out."""
    with open_text(path, ACCEPTED) as file:
        # a quote follows the separator, or blanks after it
        reader = csv.reader(file, delimiter=separator, strict=True, skipinitialspace=separator != " ")
        try:
            for row in reader:
                if len(row) > 1 or (row and row[0].strip()):
                    yield reader.line_num, row
        except UnicodeDecodeError:
            raise not_utf8(path, ACCEPTED) from None
        except csv.Error as problem:
            raise DataError(f"{path}:{reader.line_num}: cannot be read ({problem}); accepted: {ACCEPTED}") from problem
