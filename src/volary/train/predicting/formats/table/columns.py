"""Rows of predictions as columns: the class and its probability first, then each class or number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from volary.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from volary.train.predicting.formats._base import AnswerForm

INPUT = "input"
Cell = str | float | None


def header(form: AnswerForm) -> list[str]:
    """The names of the columns. Raises BadInput for classes of several positions a row, which are no columns."""
    if not form.classes:
        count = prod(form.shape)
        return [INPUT, *([form.name] if count == 1 else [f"{form.name}_{number}" for number in range(count)])]
    if len(form.shape) > 1:
        raise BadInput(
            f"--output: a row has probabilities of the shape {form.shape}, which are no columns; accepted: a .npy file"
        )
    if form.top:
        ranks = range(1, min(form.top, len(form.classes)) + 1)
        return [INPUT, *(f"{what}_{rank}" for rank in ranks for what in ("class", "probability"))]
    return [INPUT, "class", "probability", *(f"p_{name}" for name in form.classes)]


def cells(form: AnswerForm, names: Sequence[str], values: NDArray[Any]) -> Iterator[list[Cell]]:
    """The cells of each row; None beside the name of one that could not be read."""
    import numpy as np

    width = len(header(form)) - 1
    flat = values.reshape(len(values), -1)
    for name, row in zip(names, flat, strict=True):
        if np.isnan(row).all():
            yield [name, *[None] * width]
        elif not form.classes:
            yield [name, *row.tolist()]
        elif form.top:
            best = (-row).argsort(kind="stable")[: form.top].tolist()
            yield [name, *(cell for number in best for cell in (form.classes[number], float(row[number])))]
        else:
            best = int(row.argmax())
            yield [name, form.classes[best], float(row[best]), *row.tolist()]
