"""The newest confusion matrix: how many targets of each class were taken for which."""

from __future__ import annotations

import json
from typing import Any

from volary.monitor.wording import PART, clean
from volary.run.database.reader import RunReader

NAME = "confusion"
FIRST = f"{NAME}[0,0]"  # a cell that every matrix has


def confusion(reader: RunReader) -> dict[str, Any]:
    """step: of the evaluation. counts: a list for each class of targets, of how many were taken for each class.

    names: of the classes. No counts if no matrix was recorded, and none for a cell that was not.
    """
    step, cells = reader.newest_parts(NAME)
    places = {(int(found[2]), int(found[3])): value for name, value in cells.items() if (found := _cell(name))}
    size = 1 + max((max(place) for place in places), default=-1)
    counts = [[places.get((row, column)) for column in range(size)] for row in range(size)]
    return {"step": step, "counts": counts, "names": _names(reader.info().get("data_names", ""), size)}


def _cell(name: str) -> Any:
    found = PART.fullmatch(name)
    return found if found and found[3] is not None else None


def _names(text: str, size: int) -> list[str]:
    """The names of so many classes; a number is its own."""
    try:
        known = [clean(name) for name in json.loads(text)[0]]
    except (ValueError, LookupError, TypeError):
        known = []
    return [*known[:size], *map(str, range(len(known), size))]
