"""Figures of a part of what was measured, as `recall[3]` of class 3: told in tables, and left out of lines."""

from __future__ import annotations

from collections.abc import Mapping

from volary.monitor.wording import PART, clean, number


def tables(figures: Mapping[str, float]) -> list[list[tuple[str, ...]]]:
    """Tables, each with its header first: of figures of each class, and one of each matrix, its rows the targets."""
    by_class: dict[int, dict[str, float]] = {}
    matrices: dict[str, dict[tuple[int, int], float]] = {}
    for name, value in figures.items():
        if found := PART.fullmatch(name):
            called, row, column = found.groups()
            if column is None:
                by_class.setdefault(int(row), {})[called] = value
            else:
                matrices.setdefault(called, {})[int(row), int(column)] = value
    return ([_by_class(by_class)] if by_class else []) + [_matrix(*one) for one in matrices.items()]


def _by_class(found: Mapping[int, Mapping[str, float]]) -> list[tuple[str, ...]]:
    names = list(dict.fromkeys(name for values in found.values() for name in values))
    rows = [(str(one), *(number(found[one][n]) if n in found[one] else "-" for n in names)) for one in sorted(found)]
    return [("class", *map(clean, names)), *rows]


def _matrix(name: str, found: Mapping[tuple[int, int], float]) -> list[tuple[str, ...]]:
    rows, columns = (sorted({place[axis] for place in found}) for axis in (0, 1))
    cells = [(str(row), *(number(found.get((row, column), 0)) for column in columns)) for row in rows]
    return [(clean(name), *map(str, columns)), *cells]
