"""What do workers cost that hold parts of a network, beside what a PyTorch user would take for it?

    python benchmarks/partitions.py [--quick] [--only NAME] [--json FILE]

Rows `tensor-bytes`, `hybrid-bytes` and `hybrid-memory` are in `_parts_bytes.py`, `partition-auto` and `predicted` in
`_partition_choice.py`, `hybrid-100m`, `hybrid-1g`, `hybrid-1g-factors` and `hybrid-schemes` in `_hybrid_steps.py`,
`pipeline-torch` and `pipeline-torch-gpt` in `_pipeline_steps.py`, `size-curve` in `_size_curve.py`.

Rows `sharded3-...`: `partition: {name: sharded, level: 3}` on four workers, AlexNet-like (34 million parameters, P =
137 MB, nearly all in two layers), 16 samples each, beside FSDP2 (`torch.distributed.fsdp.fully_shard` of each layer, on
gloo).
`sharded3-bytes`, `sharded3-1g`: bytes that the busiest host sends in a step, and seconds of a step, on four hosts of a
lab (root) with links of 1 Gbit/s, in turns; DistributedDataParallel has turns, too. `sharded3-memory`: the most that a
worker holds above a process that has imported torch, with Adam, until the end of its last step; beside it the formula:
16 / 4 bytes a parameter, and the largest layer gathered.

Row `pipeline-bubble`: `partition: {name: pipeline, micro_batches: 8}` on four workers, or on as many as there are
cores, a transformer of 12 layers: the share of their steps in which workers wait, the median step's; beside it the
formula, (p - 1) / (m + p - 1). `zero_bubble` is printed, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import _exchange_cases as cases
import _hybrid_steps
import _partition_choice
import _parts_bytes
import _pipeline_bubble
import _pipeline_steps
import _size_curve
from _exchange_found import median
from _exchange_steps import Question, answer, found_in
from _memory_runs import PARAMETERS, Case, held_by_ours, held_by_peer
from _networks import HIDDEN
from _report import Options, Row, arguments, report

FSDP2 = "FSDP2"
LEVEL_3 = Case("ring", "none", "at most 1.00", 3, 4)
BYTES_WANTED, STEP_WANTED = "at most 0.76", "at most 0.80"
BUBBLE_WANTED = "at most 1.15"


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


def _bubble(options: Options) -> Row:
    stages, steps = _pipeline_bubble.stages_here(), 8 if options.quick else 40
    found, zero = (_pipeline_bubble.waited(schedule, steps) for schedule in ("1f1b", "zero_bubble"))
    ideal = _pipeline_bubble.ideal(stages)
    print(f"  pipeline-bubble: {stages} stages; with zero_bubble workers wait {zero:.1%} of their steps")
    return Row("pipeline-bubble", found, "of a step", "formula", ideal, found / ideal, BUBBLE_WANTED, "lower")


def _memory(options: Options) -> Row:
    steps, trials = (6, 1) if options.quick else (20, 3)
    ours = statistics.median(held_by_ours(LEVEL_3, steps) for _ in range(trials))
    theirs = held_by_peer(FSDP2, LEVEL_3.optimizer, LEVEL_3.workers, steps, trials)
    formula = 16 * PARAMETERS / LEVEL_3.workers + 4 * HIDDEN * HIDDEN
    print(f"  sharded3-memory: {formula / 2**20:.0f} MiB by the formula, without activations")
    ratio = ours / theirs
    return Row("sharded3-memory", ours / 2**20, "MiB", FSDP2, theirs / 2**20, ratio, LEVEL_3.wanted, "lower")


ROWS: dict[str, Callable[[Options], Row]] = {
    **_parts_bytes.ROWS,
    **_hybrid_steps.ROWS,
    "sharded3-bytes": _bytes,
    "sharded3-memory": _memory,
    "sharded3-1g": _step,
    "pipeline-bubble": _bubble,
    **_pipeline_steps.ROWS,
    **_size_curve.ROWS,
    **_partition_choice.ROWS,
}


if __name__ == "__main__":
    main()
