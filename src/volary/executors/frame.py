"""The frames of a run, and their rows, which processes on the executors hold and serve to the workers."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volary.comm.control.service import Replies
from volary.errors import BadInput
from volary.executors.arrays import ColumnLayout, arrays_of
from volary.executors.ledger import RowBlock, add_rows
from volary.executors.row_store import KEEP_BYTES, RowStore
from volary.executors.stage import FRAME

SERVICE = "rows"
POSITION = "volary_position"


@dataclass(frozen=True)
class HandedFrames:
    """Training and validation data, as global temporary views of positioned rows; a run may have no validation data.

    rows: how many each has. classes: how many targets tell apart; None: they are no whole numbers. keep_bytes: of the
    rows that stay in memory for each worker.
    """

    train: str
    test: str | None
    layout: ColumnLayout
    rows: Sequence[int]
    classes: int | None
    keep_bytes: int = KEEP_BYTES

    def words(self) -> str:
        """The frames as the variable has them."""
        return json.dumps(asdict(self))

    @classmethod
    def found(cls) -> HandedFrames | None:
        """The settings of this process's environment, if there are any."""
        if FRAME not in os.environ:
            return None
        return cls.read(os.environ[FRAME])

    @classmethod
    def read(cls, words: str) -> HandedFrames:
        """The settings in a variable's words."""
        settings = json.loads(words)
        return cls(**settings | {"layout": ColumnLayout(**settings["layout"])})


def positioned(frame: Any, layout: ColumnLayout) -> Any:
    """Rows of a frame, the layout's columns, each with its position: partition times 2**33 plus offset."""
    functions = import_module("pyspark.sql.functions")
    columns = (functions.col(f"`{name}`") for name in dict.fromkeys((*layout.inputs, layout.target)))
    return frame.select(*columns, functions.monotonically_increasing_id().alias(POSITION))


def rows_of(spark: Any, view: str) -> Any:
    """The rows of a frame of a run, as `positioned` has them."""
    return spark.table(f"global_temp.{view}")


class HeldRows:
    """Rows that a process holds, as a service of a keyed server: it answers those that are asked for.

    batches: Arrow's, as `positioned` gives them. keep_bytes: as of `RowStore`. Who opens a connection with the hello
    `{"claims": True}` needs the rows; once all such connections are closed, `over` is set. Raises BadInput for values
    that do not fit the layout, or each other.
    """

    def __init__(self, batches: Iterable[Any], layout: ColumnLayout, keep_bytes: int = KEEP_BYTES) -> None:
        self.over = threading.Event()
        self._claims: set[int] = set()
        self._like: list[list[Any]] | None = None
        self._blocks: list[RowBlock] = []
        self._count = 0
        self._store = RowStore(keep_bytes)
        for batch in batches:
            if batch.num_rows:
                self._take(batch, layout)
        self._store.close()

    def __len__(self) -> int:
        return self._count

    @property
    def is_claimed(self) -> bool:
        """Whether somebody needs the rows now."""
        return bool(self._claims)

    def _take(self, batch: Any, layout: ColumnLayout) -> None:
        inputs, targets = arrays_of(batch, layout)
        like = [[str(one.dtype), list(one.shape[1:])] for one in (inputs, targets)]
        require_alike([self._like or like, like], layout)
        self._like = like
        add_rows(self._blocks, batch.column(POSITION).to_numpy(zero_copy_only=False), self._count)
        self._store.append(inputs, targets)
        self._count += len(inputs)

    def announcement(self, split: int) -> dict[str, Any]:
        """The announcement for all workers: which rows of the frame `split` these are, and what they are like."""
        return {"blocks": [self._blocks if number == split else [] for number in range(2)], "like": self._like}

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        if hello.get("claims"):
            self._claims.add(peer)
        return ()

    def received(self, peer: int, message: Any, now: float) -> Replies:
        inputs, targets = self._store.take(np.frombuffer(message["places"], dtype=np.int64))
        return [(peer, {"inputs": inputs.tobytes(), "targets": targets.tobytes()})]

    def closed(self, peer: int, now: float) -> Replies:
        if peer in self._claims:
            self._claims.remove(peer)
            if not self._claims:
                self.over.set()
        return ()

    def tick(self, now: float) -> Replies:
        return ()


def require_alike(likes: Sequence[Sequence[Sequence[Any]]], layout: ColumnLayout) -> None:
    """Raise BadInput, with the column, if rows differ in size. likes: of some rows each, as announcements have it."""
    for number, column in enumerate((layout.inputs[0], layout.target)):
        sizes = list(dict.fromkeys(str(tuple(like[number][1])) for like in likes))
        if len(sizes) > 1:
            raise BadInput(
                f"column {column!r} has arrays of {sizes[0]} and of {sizes[1]}; accepted: arrays of one size"
            )


def bytes_each(like: Sequence[Sequence[Any]]) -> int:
    """The size of a row, its inputs and its target."""
    return sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in like)


def filled(kind: Sequence[Any], rows: int) -> NDArray[Any]:
    """Room for so many rows, (rows, ...), of what an announcement says that they are like."""
    return np.empty((rows, *kind[1]), dtype=kind[0])
