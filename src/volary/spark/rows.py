"""The rows of a frame as a worker's data set: asked for by their numbers, from the processes that hold them."""

from __future__ import annotations

import json
import math
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost
from volary.data.samples import HandOver
from volary.errors import DataError
from volary.executors.frame import SERVICE, HandedFrames, bytes_each, filled
from volary.executors.ledger import Announcement, Ledger, RowBlock
from volary.executors.stage import KEY, ROWS

if TYPE_CHECKING:
    from volary.data.samples import Samples, Split

_SPLITS = ("train", "test")
_PIECE_BYTES = 8 << 20  # asked for at once, of each task
_ROW_BYTES = 12 << 20  # the most that a row may have: a message has a limit
_AHEAD = 3  # batches
_ANSWER_S = 120.0  # without a byte of an answer


def open_rows(split: Split) -> Samples:
    """The rows of the frame of a split, in a worker below a task. Raises DataError if there are none.

    In the process that lets a run begin from weights they are not there, and it is known what they are like.
    """
    if ROWS not in os.environ:
        if (frames := HandedFrames.found()) is not None:
            return FrameOutline(frames, _SPLITS.index(split))
        raise DataError("rows of a frame are there in runs of volary.spark.train(spark, session, data=...) alone")
    announced = json.loads(Path(os.environ[ROWS]).read_text())
    if refused := [one["refused"] for one in announced["tasks"] if "refused" in one]:
        raise DataError(f"data: {refused[0]}")
    number = _SPLITS.index(split)
    key = bytes.fromhex(os.environ[KEY])
    found = FrameRows(announced["tasks"], number, key, announced["rows"][number], announced["classes"])
    found.handed_over = HandOver("Spark", len(found), announced["seconds"], announced["seconds"])
    if not len(found):
        what = "data is empty; accepted: a frame with rows"
        no_test = "there is no validation data; accepted: validation=..., or the setting evaluate.every=never"
        raise DataError(what if split == "train" else no_test)
    return found


class FrameOutline:
    """The facts about a frame's rows before a task has them. Raises DataError if the frame does not say their shape."""

    def __init__(self, frames: HandedFrames, split: int) -> None:
        layout = frames.layout
        self.input_shape = tuple(layout.shape) or (len(layout.inputs),)
        self.input_dtype, self.classes, self._rows = torch.float32, frames.classes, frames.rows[split]
        if layout.kind == "array" and not layout.shape:
            raise DataError(
                "a run that begins from weights is to know the shape of arrays; accepted: shape=(1, 28, 28)"
            )

    def __len__(self) -> int:
        return self._rows

    def fetch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        raise DataError("rows of a frame are with the tasks of the run alone")


class FrameRows:
    """Samples by their number: the place of a row in the order of its frame.

    announced: of all processes that hold rows. rows, classes: as `HandedFrames` has them, of this frame. Raises
    DataError if rows differ between tasks, and for rows that are there twice or are missing.
    """

    block = 1

    def __init__(self, announced: list[dict[str, Any]], split: int, key: bytes, rows: int, classes: int | None) -> None:
        likes = [one["like"] for one in announced if one["like"] is not None]
        if any(like != likes[0] for like in likes):
            raise DataError(
                f"data has inputs of the shapes {', '.join(str(like[0][1]) for like in likes)}; accepted: one"
            )
        self._like: list[list[Any]] = likes[0] if likes else [["float32", [0]], ["int64", []]]
        if bytes_each(self._like) > _ROW_BYTES:
            raise DataError(f"a row of data has {bytes_each(self._like)} bytes; accepted: up to {_ROW_BYTES}")
        try:
            self._ledger = Ledger(
                (
                    Announcement(owner, [RowBlock(*block) for block in one["blocks"][split]])
                    for owner, one in enumerate(announced)
                ),
                rows,
            )
        except ValueError as error:
            raise DataError(f"data: {error}; accepted: a frame that gives the same rows each time") from None
        self.classes = classes
        self._where = [(str(one["host"]), int(one["port"])) for one in announced]
        self.handed_over: HandOver | None = None
        self._key = key
        self._connections: dict[int, Connection] = {}
        self._thread = ThreadPoolExecutor(1, "rows")  # the one that uses the connections
        self._ahead: deque[tuple[list[int], Future[tuple[Tensor, Tensor]]]] = deque()

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self._like[0][1])

    @property
    def input_dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def scale(self) -> Any:
        """Bytes become values from 0 to 1."""
        return _unit if self._like[0][0] == "uint8" else None

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        inputs, targets = self.take(indices, epoch)
        return (_unit(inputs) if self.scale is not None else inputs), targets

    def take(self, indices: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        wanted = indices.tolist()
        while self._ahead:
            numbers, future = self._ahead.popleft()
            if numbers == wanted:
                return future.result()
            future.cancel()
        return self._thread.submit(self._asked_for, wanted).result()

    def prefetch(self, indices: Tensor, epoch: int) -> bool:
        if len(self._ahead) >= _AHEAD:
            return False
        wanted = indices.tolist()
        self._ahead.append((wanted, self._thread.submit(self._asked_for, wanted)))
        return True

    def close(self) -> None:
        """End the connections, after what was asked for ahead."""
        self._thread.shutdown(cancel_futures=True)
        for connection in self._connections.values():
            connection.close()

    def _asked_for(self, numbers: list[int]) -> tuple[Tensor, Tensor]:
        at = self._ledger.locate(np.asarray(numbers, dtype=np.int64))
        inputs, targets = (filled(kind, len(numbers)) for kind in self._like)
        step = max(1, _PIECE_BYTES // max(1, bytes_each(self._like)))
        mine = {int(owner): np.flatnonzero(at.owners == owner) for owner in np.unique(at.owners)}
        for piece in range(max((math.ceil(len(rows) / step) for rows in mine.values()), default=0)):
            asked = {owner: rows[piece * step :][:step] for owner, rows in mine.items() if len(rows) > piece * step}
            for owner, rows in asked.items():
                self._send(owner, {"places": at.places[rows].tobytes()})
            for owner, rows in asked.items():
                answer = self._receive(owner)
                for out, name in ((inputs, "inputs"), (targets, "targets")):
                    out[rows] = np.frombuffer(answer[name], dtype=out.dtype).reshape(len(rows), *out.shape[1:])
        return torch.from_numpy(inputs), torch.from_numpy(targets)

    def _send(self, owner: int, message: dict[str, Any]) -> None:
        if owner not in self._connections:
            host, port = self._where[owner]
            self._connections[owner] = Connection.open(host, port, self._key, SERVICE, {})
        self._connections[owner].send(message)

    def _receive(self, owner: int) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._connections[owner].receive(_ANSWER_S)
        except TimeoutError:
            host, _ = self._where[owner]
            raise ConnectionLost(
                f"the process on {host} that holds rows of the frame has sent none for {_ANSWER_S:g} s"
            ) from None
        return answer


def _unit(pixels: Tensor) -> Tensor:
    """Pixels (n, ...) uint8 as float32, from 0 to 1."""
    return pixels.to(torch.float32).div_(255)
