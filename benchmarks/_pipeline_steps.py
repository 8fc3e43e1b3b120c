"""The rows `pipeline-torch`, `pipeline-torch-gpt` of partitions.py: how long is a step of a pipeline?

`partition: {name: pipeline, micro_batches: 8}`, stages by what they cost, on four hosts of a lab (root) with links of
100 Mbit/s, in turns with `torch.distributed.pipelining` (Schedule1F1B, eight micro-batches) with as many layers in each
stage: AlexNet-like, and a transformer of twelve blocks, 116 MB (_exchange_turns.py). Processor seconds of all ranks are
printed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import _exchange_cases as cases
from _exchange_found import Effort, median
from _exchange_steps import FULL, Question, answer, found_with
from _report import Options, Row
from _torch_pipeline import MICRO_BATCHES

PEER = "pipelining"
# of a step that takes a second or two, so that a row ends within two minutes
QUICK = Effort(rounds=3, trials=0, alone=0, turn_s=2.0, steps=3, longest_s=9.0)
WARM_UP = 3  # steps: a pipeline measures nothing while it trains
PIPELINE: dict[str, Any] = {
    "rate": "100mbit",
    "strategy": {"partition": {"name": "pipeline", "micro_batches": MICRO_BATCHES}},
    "warm_up": WARM_UP,
    "peers": (PEER,),
}
TRANSFORMER: dict[str, Any] = {
    "network": {"name": "gpt", "layers": 12, "heads": 7, "width": 448, "dropout": 0.0, "tied": False},
    "source": {"name": "synthetic", "kind": "tokens", "shape": (128,), "classes": 65, "samples": 4096},
    "share": 2,
    "hosts": 4,
}
CASES = {
    "pipeline-torch": (cases.Case(**cases.FC, **PIPELINE), "at most 0.85"),
    "pipeline-torch-gpt": (cases.Case(**TRANSFORMER, **PIPELINE), "at most 1.00"),
}


def _row(name: str, options: Options) -> Row:
    case, wanted = CASES[name]
    found = found_with(case, QUICK if options.quick else FULL)
    ours, theirs = median(found.ours), median(found.theirs[PEER])
    print(
        f"  {name}: {ours.cpu_s:.2f} and {theirs.cpu_s:.2f} processor seconds a step, all ranks; the busiest host sent "
        f"{ours.sent_bytes / 1e6:.2f} and {theirs.sent_bytes / 1e6:.2f} MB"
    )
    return answer(name, Question(case, (PEER,), wanted), found)


ROWS = {name: partial(_row, name) for name in CASES}
