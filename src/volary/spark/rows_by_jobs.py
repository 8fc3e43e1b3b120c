"""The rows of a frame as a data set of a worker that no task is beside: each batch is a job of Spark's."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from volary.errors import DataError
from volary.executors.application import attached
from volary.executors.arrays import arrays_of
from volary.executors.frame import POSITION, HandedFrames, rows_of

if TYPE_CHECKING:
    from volary.data.samples import Samples, Split


def open_rows(split: Split) -> Samples:
    """The rows of the frame of a split. Raises DataError if there are none."""
    frames = HandedFrames.found()
    if frames is None:
        raise DataError("rows of a frame are there in runs of volary.spark.train(spark, session, data=...) alone")
    view = frames.train if split == "train" else frames.test
    if view is None:
        raise DataError("there is no validation data; accepted: validation=..., or the setting evaluate.every=never")
    return RowsByJobs(attached(), frames, view)


class RowsByJobs:
    """Samples by their number: the place of a row in the order of its frame, which Spark keeps meanwhile."""

    block = 1

    def __init__(self, spark: Any, frames: HandedFrames, view: str) -> None:
        self._functions = import_module("pyspark.sql.functions")
        self._layout, self.classes = frames.layout, frames.classes
        self._rows = rows_of(spark, view).cache()
        partition = self._functions.shiftright(POSITION, 33).alias("partition")
        counted = sorted((row["partition"], row["count"]) for row in self._rows.groupBy(partition).count().collect())
        self._partitions = np.array([one for one, _ in counted], dtype=np.int64)
        self._ends = np.cumsum([count for _, count in counted], dtype=np.int64)
        inputs, _ = self.fetch(torch.zeros(1, dtype=torch.int64))
        self.input_shape = tuple(inputs.shape[1:])
        self.input_dtype = torch.float32
        self._targets = frames.layout.whole

    def __len__(self) -> int:
        return int(self._ends[-1])

    def fetch(self, indices: Tensor, epoch: int = 0) -> tuple[Tensor, Tensor]:
        numbers, places = np.unique(indices.numpy(), return_inverse=True)
        if not len(numbers):  # a job of no rows would not say what they are like
            inputs, targets = self.fetch(torch.zeros(1, dtype=torch.int64))
            return inputs[:0], targets[:0]
        partition = np.searchsorted(self._ends, numbers, side="right")
        before = np.concatenate([[0], self._ends])[partition]
        wanted = self._partitions[partition] * 2**33 + numbers - before
        found = self._rows.where(self._functions.col(POSITION).isin(wanted.tolist())).toArrow().combine_chunks()
        if found.num_rows != len(wanted):
            raise DataError(f"data: {found.num_rows} of {len(wanted)} rows came; accepted: a frame that stays as it is")
        (batch,) = found.sort_by(POSITION).to_batches()
        inputs, targets = (torch.from_numpy(np.array(one[places])) for one in arrays_of(batch, self._layout))
        return (inputs.to(torch.float32).div_(255) if inputs.dtype == torch.uint8 else inputs), targets
