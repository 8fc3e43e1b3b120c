"""Stores what a client sends as a file that a source reads; rows in JSON become an array or a table."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from volary.errors import BadInput

_ACCEPTED = "a list of rows, each a list of numbers, or an object of numbers by column"


def as_file(folder: Path, name: str, body: bytes) -> Path:
    """A file in `folder` with what was sent. name: as the client calls it. Raises BadInput for JSON without rows."""
    given = folder / name
    if given.suffix.lower() != ".json":
        given.write_bytes(body)
        return given
    try:
        rows = json.loads(body)
    except ValueError as problem:
        raise BadInput(f"{name}: is no JSON ({problem}); accepted: {_ACCEPTED}") from None
    if not isinstance(rows, list) or not rows:
        raise BadInput(f"{name}: accepted: {_ACCEPTED}")
    return _table(given, rows) if isinstance(rows[0], dict) else _array(given, rows)


def _table(given: Path, rows: list[Any]) -> Path:
    columns = list(rows[0])
    if not columns or not all(isinstance(row, dict) and list(row) == columns for row in rows):
        raise BadInput(f"{given.name}: rows differ in their columns; accepted: {_ACCEPTED}")
    path = given.with_suffix(".csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(row.values() for row in rows)
    return path


def _array(given: Path, rows: list[Any]) -> Path:
    try:
        array = np.array(rows, dtype=np.float32)
    except (ValueError, TypeError):
        raise BadInput(f"{given.name}: rows differ in their shape, or have no numbers; accepted: {_ACCEPTED}") from None
    path = given.with_suffix(".npy")
    np.save(path, array)
    return path
