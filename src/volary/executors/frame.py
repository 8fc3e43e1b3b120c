"""The frames of a run: handed to the tasks of its stage, which hold their rows and serve them to the workers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volary.comm.control.service import Replies
from volary.errors import BadInput
from volary.executors.arrays import ColumnLayout, arrays_of
from volary.executors.ledger import BLOCK, RowBlock, add_blocks
from volary.executors.row_store import KEEP_BYTES, RowStore
from volary.executors.stage import FRAME

SERVICE = "rows"
POSITION, _SPLIT = "volary_position", "volary_split"


@dataclass(frozen=True)
class HandedFrames:
    """Training and validation data, as global temporary views; a run may have no validation data.

    rows: how many each has. classes: how many targets tell apart; None: they are no whole numbers. keep_bytes: of the
    rows of a task that stay in its memory.
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


def positioned(spark: Any, view: str, layout: ColumnLayout) -> Any:
    """Rows of a frame, the layout's columns, each with its position: partition times 2**33 plus offset."""
    functions = import_module("pyspark.sql.functions")
    columns = (functions.col(f"`{name}`") for name in dict.fromkeys((*layout.inputs, layout.target)))
    position = functions.monotonically_increasing_id().alias(POSITION)
    return spark.table(f"global_temp.{view}").select(*columns, position)


def in_tasks(spark: Any, frames: HandedFrames, tasks: int) -> Any:
    """Rows of both frames with their positions, in blocks of neighbours over so many tasks, in their order in each."""
    functions = import_module("pyspark.sql.functions")
    parts = [
        positioned(spark, view, frames.layout).withColumn(_SPLIT, functions.lit(split))
        for split, view in enumerate((frames.train, frames.test))
        if view is not None
    ]
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    block = functions.expr(f"{POSITION} div {BLOCK}")
    return rows.repartition(tasks, functions.col(_SPLIT), block).sortWithinPartitions(_SPLIT, POSITION)


class HeldRows:
    """The rows that a task has of both frames, as a service of a keyed server: answers which are asked for.

    batches: Arrow's, as `in_tasks` gives them. keep_bytes: as of `RowStore`. Raises BadInput for values that do not fit
    the layout, or each other.
    """

    def __init__(self, batches: Iterable[Any], layout: ColumnLayout, keep_bytes: int = KEEP_BYTES) -> None:
        self._record: np.dtype[Any] | None = None
        self._blocks: tuple[list[RowBlock], list[RowBlock]] = ([], [])
        self._count = 0
        store = RowStore(keep_bytes)
        for batch in batches:
            if batch.num_rows:
                store.append(self._taken(batch, layout))
        self._rows = store.rows(self._record or np.dtype([]))

    def _taken(self, batch: Any, layout: ColumnLayout) -> NDArray[Any]:
        """The rows (n,) of a batch, of which the ledger's blocks are kept."""
        inputs, targets = arrays_of(batch, layout)
        record = np.dtype([(name, v.dtype, v.shape[1:]) for name, v in (("inputs", inputs), ("targets", targets))])
        if self._record is not None and record != self._record:
            shapes = [
                ", ".join(f"{name} {of[name].shape}" for name in record.names or ()) for of in (self._record, record)
            ]
            raise BadInput(f"rows have {shapes[0]} and {shapes[1]}; accepted: arrays of one size")
        self._record = record
        splits = batch.column(_SPLIT).to_numpy(zero_copy_only=False)
        positions = batch.column(POSITION).to_numpy(zero_copy_only=False)
        for split, blocks in enumerate(self._blocks):
            mine = np.flatnonzero(splits == split)  # neighbours, as rows are sorted
            if len(mine):
                add_blocks(blocks, positions[mine], self._count + int(mine[0]))
        rows = np.empty(len(inputs), record)
        rows["inputs"], rows["targets"] = inputs, targets
        self._count += len(rows)
        return rows

    def announcement(self, host: str, port: int, attempt: int) -> dict[str, Any]:
        """The announcement for all workers: where the rows are served, which they are, and what they are like."""
        fields = [] if self._record is None else [self._record[name] for name in self._record.names or ()]
        return {
            "host": host,
            "port": port,
            "attempt": attempt,
            "blocks": self._blocks,
            "like": [[str(one.base), list(one.shape)] for one in fields] or None,
        }

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        return ()

    def received(self, peer: int, message: Any, now: float) -> Replies:
        rows = self._rows[np.frombuffer(message["places"], dtype=np.int64)]
        return [(peer, {name: rows[name].tobytes() for name in ("inputs", "targets")})]

    def closed(self, peer: int, now: float) -> Replies:
        return ()

    def tick(self, now: float) -> Replies:
        return ()


def bytes_each(like: Sequence[Sequence[Any]]) -> int:
    """The size of a row, its inputs and its target."""
    return sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in like)


def filled(kind: Sequence[Any], rows: int) -> NDArray[Any]:
    """Room for so many rows, (rows, ...), of what an announcement says that they are like."""
    return np.empty((rows, *kind[1]), dtype=kind[0])
