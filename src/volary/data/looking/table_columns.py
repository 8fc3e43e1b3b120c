"""Columns of a CSV, Parquet or Arrow table, each with its statistics, whatever a session would make of them."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from volary.data.formats.missing_words import MISSING
from volary.data.formats.text_file import not_utf8, open_text
from volary.data.records.in_memory import InHand
from volary.data.remarks import listed
from volary.data.tables.arrow_file import SUFFIXES, check_start, read_columns
from volary.errors import DataError

if TYPE_CHECKING:
    from volary.data.records.records import Records

ACCEPTED = (
    f"a folder with a folder of images or sounds for each class, a table as .csv or .tsv, or as {', '.join(SUFFIXES)}, "
    "text as .txt, arrays as train.npz or train_*.npy"
)
MOST_ROWS = 100_000  # that statistics are of
MOST_COLUMNS = 1000
FREQUENT = 5  # values that are named
_CSV = (".csv", ".tsv")
_TARGETS = ("target", "label", "class", "y")
_MOST_CLASSES = 20  # whole numbers that are taken for classes


@dataclass(frozen=True, kw_only=True)
class Column:
    """kind: number, text or image. missing: rows without a value. distinct: how many values differ.

    least, mean, std, greatest: of numbers, over the rows that have one; None of others. frequent: values of text and
    of few whole numbers with their rows, the most frequent first.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    least: float | None = None
    mean: float | None = None
    std: float | None = None
    greatest: float | None = None
    frequent: tuple[tuple[str, int], ...] = ()
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class SeenTable:
    """A table that was looked at. separator: of a CSV file, else empty. values: of the target, as text, by row.

    images: of its first column of encoded images, if there is one.
    """

    rows: int
    columns: list[Column]
    target: str
    separator: str
    values: list[str]
    remarks: list[str]
    images: Records | None = None

    @property
    def classifies(self) -> bool:
        """Whether the target is a class: text, or few whole numbers from 0."""
        target = next(one for one in self.columns if one.name == self.target)
        few = target.whole and target.distinct <= _MOST_CLASSES and (target.least or 0) >= 0
        return target.kind == "text" or few

    @property
    def classes(self) -> dict[str, int]:
        """Rows by class, the most frequent first; none if the target is a number."""
        return dict(Counter(self.values).most_common()) if self.classifies else {}

    def class_of(self, row: int) -> str:
        """The target of a row, as text."""
        return self.values[row]


def table_at(path: Path, target: str) -> SeenTable:
    """The table at `path`, a file or a folder of Parquet or Arrow files. Raises DataError if there is none."""
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder; accepted: {ACCEPTED}")
    if path.is_file() and path.suffix.lower() in _CSV:
        return _of_csv(path, target)
    if path.is_file() and path.suffix.lower() in SUFFIXES:
        return _of_arrow([path], path, target)
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix.lower() in SUFFIXES and one.name[0] != ".")
        if files:
            return _of_arrow(files, path, target)
    raise DataError(f"{path}: is no data that Volary knows; accepted: {ACCEPTED}")


def _of_csv(path: Path, target: str) -> SeenTable:
    try:
        with open_text(path, "a table with a header, as text in UTF-8") as file:
            first = file.readline()
            separator = max(",;\t|", key=first.count)
            file.seek(0)
            rows = csv.reader(file, delimiter=separator, strict=True, skipinitialspace=True)
            header = [name.strip() for name in next(rows, [])]
            _refuse(path, header)
            kept = [row for row in islice(rows, MOST_ROWS) if len(row) > 1 or (row and row[0].strip())]
            count = len(kept) + sum(1 for row in rows if row)
    except UnicodeDecodeError:
        raise not_utf8(path, ACCEPTED) from None
    except csv.Error as problem:
        raise DataError(f"{path}: cannot be read ({problem}); accepted: {ACCEPTED}") from None
    if not kept:
        raise DataError(f"{path}: empty: it has a header alone; accepted: at least one sample")
    if uneven := next((number for number, row in enumerate(kept, 1) if len(row) != len(header)), 0):
        raise DataError(f"{path}: row {uneven} has {len(kept[uneven - 1])} values; its header has {len(header)}")
    cells = [[row[at].strip() for row in kept] for at in range(len(header))]
    columns = [_column(name, one) for name, one in zip(header, cells, strict=True)]
    target = _target(path, header, target)
    return SeenTable(
        rows=count,
        columns=columns,
        target=target,
        separator=separator,
        values=cells[header.index(target)],
        remarks=_cut_off(count),
    )


def _of_arrow(files: Sequence[Path], path: Path, target: str) -> SeenTable:
    for file in files:
        check_start(file)
    names = read_columns(files[0], ())[1]
    _refuse(path, names)
    target = _target(path, names, target)
    columns, values, images, rows = list[Column](), list[str](), None, 0
    for name in names:
        found = list[Any]()
        for file in files:
            column = read_columns(file, (name,))[0].column(0)
            rows += len(column) if name == target else 0
            found += column.slice(0, MOST_ROWS - len(found)).to_pylist()
        contents = [_bytes_of(one) for one in found]
        if name != target and images is None and any(contents):
            images = _records(path, name, [one or b"" for one in contents])
            columns.append(Column(name=name, kind="image", missing=contents.count(None), distinct=len(set(contents))))
            continue
        texts = ["" if one is None else str(one) for one in found]
        columns.append(_column(name, texts))
        values = texts if name == target else values
    return SeenTable(
        rows=rows, columns=columns, target=target, separator="", values=values, remarks=_cut_off(rows), images=images
    )


def _records(path: Path, column: str, contents: list[bytes]) -> Records:
    return InHand(contents.__getitem__, len(contents), lambda row: f"{path}: row {row} of {column}")


def _bytes_of(value: Any) -> bytes | None:
    """The encoded image of a cell: bytes, or `{bytes, path}`."""
    value = value.get("bytes") if isinstance(value, dict) else value
    return value if isinstance(value, bytes) else None


def _refuse(path: Path, names: Sequence[str]) -> None:
    """Raise DataError for a header that no session could use."""
    if len(names) < 2:
        raise DataError(f"{path}: has {len(names)} columns; accepted: one to predict, and one or more to do so from")
    if len(names) > MOST_COLUMNS:
        raise DataError(f"{path}: has {len(names):,} columns; accepted: up to {MOST_COLUMNS:,}")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise DataError(f"{path}: has several columns {twice[0]!r}; accepted: names that differ")


def _target(path: Path, names: Sequence[str], wanted: str) -> str:
    if wanted and wanted not in names:
        raise DataError(f"{path}: has no column {wanted!r}; it has {listed(names)}")
    guessed = next((name for known in _TARGETS for name in names if name.lower() == known), names[-1])
    return wanted or guessed


def _column(name: str, texts: Sequence[str]) -> Column:
    there = [text for text in texts if text not in MISSING]
    counted, missing = Counter(there), len(texts) - len(there)
    frequent = tuple(counted.most_common(FREQUENT))
    numbers = [_number(text) for text in there]
    if not there or any(math.isnan(one) for one in numbers):
        return Column(name=name, kind="text", missing=missing, distinct=len(counted), frequent=frequent)
    values = np.array(numbers)
    whole = bool((values == np.round(values)).all())
    with np.errstate(over="ignore", invalid="ignore"):
        return Column(
            name=name,
            kind="number",
            missing=missing,
            distinct=len(counted),
            least=float(values.min()),
            mean=float(values.mean()),
            std=float(values.std()),
            greatest=float(values.max()),
            frequent=frequent if whole and len(counted) <= _MOST_CLASSES else (),
            whole=whole,
        )


def _number(text: str) -> float:
    """The number that a cell says; NaN for text."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _cut_off(rows: int) -> list[str]:
    return [f"statistics are of the first {MOST_ROWS:,} of {rows:,} rows"] if rows > MOST_ROWS else []
