"""JSON lines: an object for each input, with lists as they are; one that could not be read has its name alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from volary.train.predicting.formats._base import AnswerForm


class JsonLines:
    """A line for each input; see `answer`."""

    def __init__(self, path: Path, form: AnswerForm) -> None:
        self._form, self._file = form, path.open("w", encoding="utf-8")

    def write(self, names: Sequence[str], values: NDArray[Any]) -> None:
        for name, row in zip(names, values, strict=True):
            self._file.write(json.dumps(answer(self._form, name, row), ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


def answer(form: AnswerForm, name: str, row: NDArray[Any]) -> dict[str, Any]:
    """A row's values (*shape) as JSON has them; numbers that JSON does not have (NaN, infinite) become null."""
    import numpy as np

    found: dict[str, Any] = {"input": name}
    if np.isnan(row).all():
        return found
    if not form.classes or row.ndim > 1:
        return found | {form.name if not form.classes else "probabilities": _plain(row.tolist())}
    best = (-row).argsort(kind="stable")[: form.top or len(row)].tolist()
    found |= {"class": form.classes[best[0]], "probability": float(row[best[0]])}
    return found | {"probabilities": {form.classes[number]: float(row[number]) for number in best}}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if abs(value) < float("inf") else None


WRITER = JsonLines
