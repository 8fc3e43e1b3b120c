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
from volary.executors.ledger import BLOCK, blocks_of
from volary.executors.stage import FRAME

SERVICE = "rows"
_POSITION, _SPLIT = "volary_position", "volary_split"


@dataclass(frozen=True)
class HandedFrames:
    """Training and validation data, as global temporary views; a run may have no validation data."""

    train: str
    test: str | None
    layout: ColumnLayout

    def words(self) -> str:
        """The frames as the variable has them."""
        return json.dumps(asdict(self))

    @classmethod
    def found(cls) -> HandedFrames | None:
        """Those of this process's environment, if there are any."""
        if FRAME not in os.environ:
            return None
        settings = json.loads(os.environ[FRAME])
        return cls(settings["train"], settings["test"], ColumnLayout(**settings["layout"]))


def in_tasks(spark: Any, frames: HandedFrames, tasks: int) -> Any:
    """Rows of both frames with their positions, in blocks of neighbours over so many tasks, in their order in each."""
    functions = import_module("pyspark.sql.functions")
    parts = []
    for split, view in enumerate((frames.train, frames.test)):
        if view is not None:
            columns = dict.fromkeys((*frames.layout.inputs, frames.layout.target))
            position = functions.monotonically_increasing_id().alias(_POSITION)
            parts.append(
                spark.table(f"global_temp.{view}").select(
                    *(functions.col(f"`{name}`") for name in columns), position, functions.lit(split).alias(_SPLIT)
                )
            )
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    block = functions.expr(f"{_POSITION} div {BLOCK}")
    return rows.repartition(tasks, functions.col(_SPLIT), block).sortWithinPartitions(_SPLIT, _POSITION)


class HeldRows:
    """The rows that a task has, by their frame, as a service of a keyed server: answers which are asked for.

    batches: Arrow's, as `in_tasks` gives them. Raises BadInput for values that do not fit the layout, or each other.
    """

    def __init__(self, batches: Iterable[Any], layout: ColumnLayout) -> None:
        kept: list[tuple[list[Any], list[Any], list[Any]]] = [([], [], []), ([], [], [])]
        shape: tuple[int, ...] | None = None
        for batch in batches:
            if not batch.num_rows:
                continue
            inputs, targets = arrays_of(batch, layout)
            if shape is not None and inputs.shape[1:] != shape:
                raise BadInput(f"inputs of {shape} in a row and of {inputs.shape[1:]} in another; accepted: one size")
            shape = inputs.shape[1:]
            splits = batch.column(_SPLIT).to_numpy(zero_copy_only=False)
            positions = batch.column(_POSITION).to_numpy(zero_copy_only=False)
            for split in (0, 1):
                mine = splits == split
                if mine.any():
                    for parts, values in zip(kept[split], (inputs, targets, positions), strict=True):
                        parts.append(values if mine.all() else values[mine])
        self._rows = [tuple(np.concatenate(part) for part in parts) if parts[0] else None for parts in kept]

    def announcement(self, host: str, port: int, attempt: int) -> dict[str, Any]:
        """What all workers are told: where the rows are served, which they are, and what they are like."""
        there = [rows for rows in self._rows if rows is not None]
        tops = [int(targets.max()) for _, targets, _ in there if targets.dtype == np.int64]
        first = there[0] if there else None
        return {
            "host": host,
            "port": port,
            "attempt": attempt,
            "blocks": [[] if rows is None else blocks_of(rows[2]) for rows in self._rows],
            "like": None if first is None else [[str(one.dtype), list(one.shape[1:])] for one in first[:2]],
            "top": max(tops, default=-1),
        }

    def opened(self, peer: int, hello: dict[str, Any], now: float) -> Replies:
        return ()

    def received(self, peer: int, message: Any, now: float) -> Replies:
        rows = self._rows[message["split"]]
        assert rows is not None, "nobody asks for rows that were not announced"
        places = np.frombuffer(message["places"], dtype=np.int64)
        return [(peer, {"inputs": rows[0][places].tobytes(), "targets": rows[1][places].tobytes()})]

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
