"""Snapshots of Caffe's solvers (.solverstate): how far one was, which weights it had, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from volary.errors import SettingError
from volary.network.caffe.solver.files import found_from
from volary.network.caffe.weights.blob import Blob, blob_of
from volary.network.caffe.weights.files import content_of, read_message
from volary.network.caffe.weights.hdf5 import SIGNATURE, blobs, group_of, opened, scalar


@dataclass(frozen=True, eq=False)
class SolverSnapshot:
    """A solver after so many iterations.

    weights: the caffemodel of that moment. history: of each parameter in the order of the layers, once or, with
    AdaDelta and Adam, first one of each and then another.
    """

    file: Path
    iterations: int
    weights: Path
    history: tuple[Blob, ...]


def read_snapshot(file: Path, weights: Path | None = None) -> SolverSnapshot:
    """The snapshot in a file, binary protobuf or HDF5. weights: instead of the caffemodel that it names.

    Raises SettingError if it is something else, or its caffemodel is missing.
    """
    of_hdf5 = bytes(content_of(file)[: len(SIGNATURE)]) == SIGNATURE
    iterations, learned, history = _in_hdf5(file) if of_hdf5 else _in_protobuf(file)
    if iterations < 1 or not history:
        raise SettingError(f"{file}: has no iterations or no history; accepted: a .solverstate")
    named = str(weights or learned)
    found = found_from(named, file.parent) if named else None
    if found is None or not found.is_file():
        what = f"{named}: no such file" if named else "is not named"
        raise SettingError(f"{file}: its caffemodel {what}; accepted: beside the snapshot, or --weights FILE")
    return SolverSnapshot(file, iterations, found, history)


def _in_protobuf(file: Path) -> tuple[int, str, tuple[Blob, ...]]:
    state = read_message(file, "SolverState")
    try:
        return state.one("iter"), state.one("learned_net"), tuple(map(blob_of, state.all("history")))
    except ValueError as error:
        raise SettingError(f"{file}: a history {error}") from None


def _in_hdf5(file: Path) -> tuple[int, str, tuple[Blob, ...]]:
    with opened(file) as content:
        history = blobs(group_of(content, "history", file), f"{file}: history")
        return scalar(content, "iter", int, file), scalar(content, "learned_net", str, file), tuple(history)
