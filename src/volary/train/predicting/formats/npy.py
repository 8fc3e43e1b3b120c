"""NumPy's .npy: the values alone, (inputs, ...) float32; NaN for an input that could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volary.errors import BadInput

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from volary.train.predicting.formats._base import AnswerForm


class NpyPredictions:
    """Written row after row behind its header, which says how many there will be."""

    def __init__(self, path: Path, form: AnswerForm) -> None:
        from numpy.lib.format import write_array_header_1_0

        if form.top:
            raise BadInput("--top: a .npy file has the values alone; accepted: .csv, .jsonl, .parquet")
        self._file = path.open("wb")
        shape = (form.rows, *form.shape)
        write_array_header_1_0(self._file, {"descr": "<f4", "fortran_order": False, "shape": shape})

    def write(self, names: Sequence[str], values: NDArray[Any]) -> None:
        self._file.write(values.astype("<f4").tobytes())

    def close(self) -> None:
        self._file.close()


WRITER = NpyPredictions
