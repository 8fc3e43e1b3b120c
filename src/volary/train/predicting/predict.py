"""Predicts from all of an input in this process, or puts together what workers have predicted of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from volary.data.memory import InMemory
from volary.data.remarks import remarks_of
from volary.data.unlabelled.unlabelled import Unlabelled
from volary.errors import BadInput
from volary.run.directory import RunDirectory
from volary.train.device import choose_device
from volary.train.predicting.formats import ROOM
from volary.train.predicting.formats._base import AnswerForm, PredictionWriter
from volary.train.predicting.predictions import Predictions
from volary.train.predicting.predictor import Predictor
from volary.train.predicting.request import Request
from volary.train.predicting.rows import PredictedRows, Rows, refuse_unreadable, share_of

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from volary.train.own.worker import Worker

_ANSWERED_AT_ONCE = 32  # rows of a batch where nothing is measured
_MERGED_ROWS = 4096  # of what workers have written, at once


class Output:
    """Where rows go: a file that has its name once it is whole, or memory. top: see `AnswerForm`."""

    def __init__(self, predictor: Predictor, given: Unlabelled, path: Path | None, top: int) -> None:
        self._predictor, self._given, self._path, self._top = predictor, given, path, top
        self._writer: PredictionWriter | None = None
        self._kept: list[NDArray[Any]] = []

    def take(self, parts: Iterable[PredictedRows], rows: int) -> None:
        """Write all parts, of so many rows together. Raises BadInput if the file cannot have such rows."""
        for part in parts:
            values = part.values.numpy()
            names = [self._given.name(row) for row in range(part.first, part.first + len(values))]
            if self._path is None:
                self._kept.append(values)
                continue
            if self._writer is None:
                form = form_of(self._predictor, values, rows, self._top)
                self._writer = ROOM.load(self._path.suffix[1:])(_draft(self._path), form)
            self._writer.write(names, values)

    def predictions(self, rows: int, lost: Mapping[int, str], batch_size: int) -> Predictions:
        """Finish the file, and say what was predicted."""
        about: dict[str, Any] = {"remarks": remarks_of(self._given.samples), "batch_size": batch_size}
        if self._path is not None:
            if self._writer is not None:
                self._writer.close()
                _draft(self._path).rename(self._path)
            return Predictions(rows, lost, output=self._path, **about)
        values = np.concatenate(self._kept)
        names = tuple(map(self._given.name, range(rows)))
        classes = form_of(self._predictor, values, rows, self._top).classes
        return Predictions(rows, lost, values, names, classes, **about)

    def give_up(self) -> None:
        """Remove what was begun."""
        if self._path is not None:
            if self._writer is not None:
                self._writer.close()
            _draft(self._path).unlink(missing_ok=True)


def form_of(predictor: Predictor, values: NDArray[Any], rows: int, top: int) -> AnswerForm:
    """The form of values (n, ...) of so many rows. top: see `AnswerForm`. Raises BadInput for more than there are."""
    classes = predictor.classes
    if predictor.classifies and len(classes) != values.shape[-1]:
        # more outputs than classes, or nobody says how many there are
        classes = (*classes, *map(str, range(len(classes), values.shape[-1])))
    if top > len(classes):
        there = f"0 to {len(classes)}, as there are so many classes" if classes else "0, as the outputs are no classes"
        raise BadInput(f"top is {top}; accepted: {there}")
    return AnswerForm(rows, tuple(values.shape[1:]), predictor.layer or "output", classes, top)


def answers_of(predictor: Predictor, given: Path, top: int) -> Iterator[tuple[AnswerForm, str, NDArray[Any]]]:
    """Each row of a file: its form, its name and its values, as `predict_here` gives them, in batches of one size.

    Raises BadInput for what does not fit.
    """
    inputs = predictor.inputs(given)
    count = len(inputs.samples)
    rows = Rows(predictor, inputs, range(count), _ANSWERED_AT_ONCE)
    for part in rows:
        values = part.values.numpy()
        for number, row in enumerate(values):
            yield form_of(predictor, values, count, top), inputs.name(part.first + number), row
    refuse_unreadable(rows.lost, count)


def predict_here(request: Request, output: Path | None, top: int, tensor: Tensor | None = None) -> Predictions:
    """Predict in this process. output: the file, of a suffix that `ROOM` names; None: values are kept in memory.

    tensor (n, ...): inputs as the network takes them, in place of the request's. Raises BadInput for what does not fit.
    """
    predictor = Predictor.of(RunDirectory(request.run), request, choose_device(request.device, 0, 1))
    if tensor is None:
        given = predictor.inputs(Path(request.inputs))
    else:
        given = Unlabelled(InMemory(tensor, torch.zeros(len(tensor), dtype=torch.int64)))
    count = len(given.samples)
    rows, written = Rows(predictor, given, range(count), request.batch_size), Output(predictor, given, output, top)
    try:
        written.take(rows, count)
        refuse_unreadable(rows.lost, count)
        return written.predictions(count, rows.lost, rows.sizes.size)
    except BaseException:
        written.give_up()
        raise


def predict_share(worker: Worker, request: dict[str, Any], folder: str) -> dict[str, Any]:
    """Predict this worker's rows into a file of its own in `folder`; what it has to say of them.

    Nothing is exchanged: workers need no equal shares, and one of them may be without a row.
    """
    wanted = Request(**request | {"overrides": tuple(request["overrides"])})
    predictor = Predictor.of(RunDirectory(wanted.run), wanted, worker.device)
    given = predictor.inputs(Path(wanted.inputs))
    rows = Rows(predictor, given, share_of(len(given.samples), worker.rank, worker.world_size), wanted.batch_size)
    with part_file(Path(folder), worker.rank).open("wb") as file:
        shape: list[int] | None = None
        for part in rows:
            shape = list(part.values.shape[1:])
            file.write(part.values.numpy().astype("<f4").tobytes())
    return {"shape": shape, "lost": dict(rows.lost), "batch_size": rows.sizes.size}


def part_file(folder: Path, rank: int) -> Path:
    """The file that a worker writes its rows to."""
    return folder / f"rows-{rank}.f32"


def merged(request: Request, reports: list[dict[str, Any]], folder: Path, output: Path | None, top: int) -> Predictions:
    """Put together what workers have left in `folder`. said: what each returned. Raises BadInput as `predict_here`."""
    predictor = Predictor.of(RunDirectory(request.run), request, choose_device("cpu", 0, 1))
    given = predictor.inputs(Path(request.inputs))
    count, written = len(given.samples), Output(predictor, given, output, top)
    try:
        lost = {row: why for one in reports for row, why in one["lost"].items()}
        refuse_unreadable(lost, count)
        written.take(_parts(folder, reports, count), count)
        return written.predictions(count, lost, max(one["batch_size"] for one in reports))
    except BaseException:
        written.give_up()
        raise


def _parts(folder: Path, reports: list[dict[str, Any]], count: int) -> Iterator[PredictedRows]:
    shape = next(one["shape"] for one in reports if one["shape"] is not None)
    for rank, one in enumerate(reports):
        share = share_of(count, rank, len(reports))
        for start in range(0, len(share), _MERGED_ROWS):
            rows = min(_MERGED_ROWS, len(share) - start)
            values = np.full((rows, *shape), np.nan, dtype=np.float32)
            if one["shape"] is not None:  # else it could read none
                file = np.memmap(part_file(folder, rank), "<f4", "r", shape=(len(share), *shape))
                values[:] = file[start : start + rows]
            yield PredictedRows(share.start + start, torch.from_numpy(values))


def as_arguments(request: Request) -> dict[str, Any]:
    """The request as plain values, which `predict_share` takes."""
    return asdict(request) | {"overrides": list(request.overrides)}


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")
