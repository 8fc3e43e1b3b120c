"""What do workers cost that hold parts of a network, beside what a PyTorch user would take for it?

    python benchmarks/partitions.py [--quick] [--only NAME] [--json FILE]

Rows `tensor-bytes`, `hybrid-bytes` and `hybrid-memory` are in `_parts_bytes.py`, `partition-auto` and `predicted` in
`_partition_choice.py`, `hybrid-100m`, `hybrid-1g`, `hybrid-1g-factors` and `hybrid-schemes` in `_hybrid_steps.py`,
`pipeline-torch` and `pipeline-torch-gpt` in `_pipeline_steps.py`, `pipeline-bubble` in `_pipeline_bubble.py`,
`size-curve` in `_size_curve.py`.

Rows `sharded3-...`: `partition: {name: sharded, level: 3}` on four workers, AlexNet-like (34 million parameters, P =
137 MB, nearly all in two layers), 16 samples each, beside FSDP2 (`torch.distributed.fsdp.fully_shard` of each layer, on
gloo).
`sharded3-bytes`, `sharded3-1g`: bytes that the busiest host sends in a step, and seconds of a step, on four hosts of a
lab (root) with links of 1 Gbit/s, in turns; DistributedDataParallel has turns, too. `sharded3-memory`: the most that a
worker holds above a process that has imported torch, with Adam, until its last step.
`sharded3-memory-formula`: the same beside 16 / 4 bytes a parameter, activations (what autograd saves of a pass, as
`volary check` counts it), and one layer, the largest: its parameters and its gradients, of both what others own.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import _exchange_cases as cases
import _hybrid_steps
import _partition_choice
import _parts_bytes
import _pipeline_bubble
import _pipeline_steps
import _size_curve
from _exchange_found import median
from _exchange_steps import Question, answer, found_in
from _memory_runs import CLASSES, PARAMETERS, SHARE, Case, held_by_ours_in, held_by_peer, sharded
from _networks import HIDDEN, alexnet_like
from _report import Options, Row, arguments, report
from volary.train.trying.step_cost import step_cost

FSDP2 = "FSDP2"
LEVEL_3 = Case("ring", "none", "at most 1.00", sharded(3), 4)
EFFORT = {True: (6, 1), False: (20, 3)}  # steps and trials, by whether it is to be quick
BYTES_WANTED, STEP_WANTED, FORMULA_WANTED = "at most 0.76", "at most 0.80", "at most 1.10"


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(ROWS))
    report([row(options) for name, row in ROWS.items() if options.wants(name)], options.json)


def _bytes(options: Options) -> Row:
    found = found_in(cases.FC_1G_SHARDED_3, quick=options.quick)
    ours, theirs = median(found.ours).sent_bytes, median(found.theirs[FSDP2]).sent_bytes
    sizes = f"{ours / 4 / PARAMETERS:.2f} P, {theirs / 4 / PARAMETERS:.2f} P"
    print(f"  sharded3-bytes: {sizes}; by its own account ours sends {median(found.ours).payload_bytes / 1e6:.1f} MB")
    unit, peer = "MB a step, of the busiest host", found.peers[FSDP2]
    return Row("sharded3-bytes", ours / 1e6, unit, peer, theirs / 1e6, ours / theirs, BYTES_WANTED, "lower")


def _step(options: Options) -> Row:
    found = found_in(cases.FC_1G_SHARDED_3, quick=options.quick)
    return answer("sharded3-1g", Question(cases.FC_1G_SHARDED_3, (FSDP2,), STEP_WANTED), found)


def _memory(options: Options) -> Row:
    steps, trials = EFFORT[options.quick]
    ours = held_by_ours_in(LEVEL_3, steps, trials)
    theirs = held_by_peer(FSDP2, LEVEL_3.optimizer, LEVEL_3.workers, steps, trials)
    ratio = ours / theirs
    return Row("sharded3-memory", ours / 2**20, "MiB", FSDP2, theirs / 2**20, ratio, LEVEL_3.wanted, "lower")


def _memory_formula(options: Options) -> Row:
    ours, workers = held_by_ours_in(LEVEL_3, *EFFORT[options.quick]), LEVEL_3.workers
    kept, activations = 16 * PARAMETERS / workers, _activations_bytes()
    of_others = 4 * HIDDEN * HIDDEN * (workers - 1) / workers
    each = ", ".join(f"{part / 2**20:.0f}" for part in (kept, activations, of_others, of_others))
    print(f"  sharded3-memory-formula: {each} MiB: what is kept, activations, of the largest layer what others own:")
    once = kept + activations + of_others
    print(f"  its parameters, and its gradients; without these {ours / once:.3f} of the formula")
    formula = once + of_others
    ratio = ours / formula
    return Row(
        "sharded3-memory-formula", ours / 2**20, "MiB", "formula", formula / 2**20, ratio, "at most 1.10", "lower"
    )


def _activations_bytes() -> int:
    """Count what autograd keeps of a worker's share until backward, besides parameters, as `volary check` does."""
    network = alexnet_like(CLASSES)
    images, labels = torch.rand(SHARE, 3, 32, 32), torch.randint(CLASSES, (SHARE,))

    def learn(samples: int) -> None:
        nn.functional.cross_entropy(network(images[:samples]), labels[:samples]).backward()

    return step_cost(network, learn, SHARE, 1, 1).activations_bytes


ROWS: dict[str, Callable[[Options], Row]] = {
    **_parts_bytes.ROWS,
    **_hybrid_steps.ROWS,
    "sharded3-bytes": _bytes,
    "sharded3-memory": _memory,
    "sharded3-memory-formula": _memory_formula,
    "sharded3-1g": _step,
    "pipeline-bubble": _pipeline_bubble.bubble,
    **_pipeline_steps.ROWS,
    **_size_curve.ROWS,
    **_partition_choice.ROWS,
}


if __name__ == "__main__":
    main()
