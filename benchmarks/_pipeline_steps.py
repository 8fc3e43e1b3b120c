"""The rows `pipeline-torch`, `pipeline-torch-gpt` of partitions.py: how long is a step of a pipeline?

`partition: {name: pipeline, micro_batches: 8}`, stages by what they cost, on four hosts of a lab (root) with links of
100 Mbit/s, in turns with `torch.distributed.pipelining` (Schedule1F1B, eight micro-batches) with as many layers in each
stage: AlexNet-like, and a transformer of six blocks (_exchange_turns.py). Processor seconds of all ranks are printed.
"""

from __future__ import annotations

from functools import partial

import _exchange_cases as cases
from _exchange_found import median
from _exchange_steps import Question, answer, found_in
from _report import Options, Row
from _torch_pipeline import MICRO_BATCHES

PEER = "pipelining"
PIPELINE = {"partition": {"name": "pipeline", "micro_batches": MICRO_BATCHES}}
CASES = {
    "pipeline-torch": (cases.Case(**cases.FC, rate="100mbit", strategy=PIPELINE, peers=(PEER,)), "at most 0.85"),
    "pipeline-torch-gpt": (cases.Case(**cases.GPT, rate="100mbit", strategy=PIPELINE, peers=(PEER,)), "at most 1.00"),
}


def _row(name: str, options: Options) -> Row:
    case, wanted = CASES[name]
    found = found_in(case, quick=options.quick)
    ours, theirs = median(found.ours), median(found.theirs[PEER])
    print(
        f"  {name}: {ours.cpu_s:.2f} and {theirs.cpu_s:.2f} processor seconds a step, all ranks; the busiest host sent "
        f"{ours.sent_bytes / 1e6:.2f} and {theirs.sent_bytes / 1e6:.2f} MB"
    )
    return answer(name, Question(case, (PEER,), wanted), found)


ROWS = {name: partial(_row, name) for name in CASES}
