"""How much memory does a worker need at most, beside one of DistributedDataParallel with gradient_as_bucket_view?

    python benchmarks/memory.py [--quick] [--only NAME] [--json FILE]

Two workers on this machine train AlexNet-like (34 million parameters, 137 MB), 16 samples each, SGD with momentum. Rows
`sharded-adam-...`: Adam, and workers that keep shares, level 1 or 2, two or (`-4`) four of them, between hosts or
(`-one-machine`) in shared memory, where level 2 saves nothing more; the peer has Adam, too. Wanted of these are (8 +
8 / k) / 16 and (4 + 12 / k) / 16: bytes that a parameter takes with k workers, of those that it takes in the peer.
Every command is one of its own: ours `volary train`, whose workers are started one by one (OMP_PROC_BIND is set), so
that both sides import torch alike; the peer is torchrun with a plain script. `memory-2-hosts`: route torch, by which
the workers of two hosts sum; `memory-one-machine`: in shared memory; `memory-onebit`: codec onebit, between hosts.

The figure is the largest private memory that a worker had until its last step, with its part of what it shares (PSS
without files), above a process that has imported torch; looked at every 10 ms. What writing the last
checkpoint took on top is printed, and no part of the row. --quick: 6 steps instead of 20, and one command a side
instead of three, of which the median counts.
"""

from __future__ import annotations

from _memory_runs import PARAMETERS, Case, held_by_ours_in, held_by_peer, sharded
from _report import Options, Row, arguments, report

CASES = {
    "memory-2-hosts": Case("torch", "none", "at most 1.00"),
    "memory-one-machine": Case("shared", "none", "at most 1.00"),
    "memory-onebit": Case("torch", "onebit", "at most 1.35"),
    "sharded-adam-1": Case("ring", "none", "at most 0.75", sharded(1)),
    "sharded-adam-1-4": Case("ring", "none", "at most 0.63", sharded(1), 4),
    "sharded-adam-1-one-machine": Case("shared", "none", "at most 0.75", sharded(1)),
    "sharded-adam-1-4-one-machine": Case("shared", "none", "at most 0.63", sharded(1), 4),
    "sharded-adam-2": Case("ring", "none", "at most 0.63", sharded(2)),
    "sharded-adam-2-4": Case("ring", "none", "at most 0.44", sharded(2), 4),
}


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES))
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    steps, trials = (6, 1) if options.quick else (20, 3)
    ours = held_by_ours_in(case, steps, trials)
    theirs = held_by_peer("DDP", case.optimizer, case.workers, steps, trials)
    print(f"  {name}: {ours / PARAMETERS:.1f} bytes a parameter, with activations; DDP {theirs / PARAMETERS:.1f}")
    return Row(
        name, ours / 2**20, "MiB", "DDP, gradients as bucket views", theirs / 2**20, ours / theirs, case.wanted, "lower"
    )


if __name__ == "__main__":
    main()
