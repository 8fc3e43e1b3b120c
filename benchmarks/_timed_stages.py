"""A transformer whose workers write down how much processor time each pass of a pipeline takes: of _pipeline_bubble.py.

A worker imports this file to build its network, and times its passes from then on.
"""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from volary.network.zoo.gpt import Gpt
from volary.partition.pipelining import stages
from volary.partition.pipelining.schedules import StagePass

if TYPE_CHECKING:
    from torch import nn

LAYERS, HEADS, WIDTH = 12, 8, 256


def gpt(input_shape: tuple[int, ...], classes: int, notes: str) -> nn.Module:
    """Tokens (batch, time) to (batch, time, classes). notes: the folder to which each worker writes."""
    _time_passes(Path(notes))
    return Gpt(layers=LAYERS, heads=HEADS, width=WIDTH, dropout=0.0, tied=False).build(input_shape, classes)


@cache  # a worker may build its network more than once
def _time_passes(notes: Path) -> None:
    do = stages._Batch.do

    def timed(batch: stages._Batch, action: StagePass) -> None:
        began_s = time.thread_time()  # what waits takes none, and neither does who has no core
        do(batch, action)
        line = [action.work, action.stage, action.micro_batch, time.thread_time() - began_s]
        with (notes / f"{batch.stages._rank}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    stages._Batch.do = timed  # type: ignore[assignment, method-assign]
