"""What does the exchange of gradients cost, and what do its parts carry, beside what a user would take instead?

    python benchmarks/exchange.py [--quick] [--only NAME] [--json FILE]

Rows between hosts are measured in the lab (docs/lab.md): hosts are namespaces of this machine. Where there cannot be a
lab they are skipped, and the reason is printed. limit: bytes that have to pass the slowest link / (0.957 x its rate),
0.957 being what TCP can carry.

Steps (`fc-...`, `resnet-...`): ours is `volary.train.loop.train` in a real run, at its defaults but for evaluations,
checkpoints and comparisons of replicas, which nobody makes. The peer is DistributedDataParallel over gloo, in the same
processes, on a copy of the network, with batches of the same kind from memory; it is tried with several settings
(`PEERS` in _exchange_turns.py), and measured with the fastest; --quick takes the first. A turn is five steps or more,
and ends when on all ranks everything is sent, received and applied. compute: a step without exchange, all ranks at
once: ours as a run of one worker, or the peer's under no_sync, whichever is faster. fc is AlexNet-like (34 million
parameters, 16 samples a rank), resnet has the widths of ResNet-18 (11 million, 8 samples a rank); SGD with momentum,
fp32; one process a host, with one torch thread, kept to its share of the cores as `volary train` does. Who is first
changes with every round. ratio: the median over the rounds of ours / max(compute, limit) for `fc-1g` and
`resnet-1g-2`, else of ours / theirs. Above the table stand, for both sides, seconds, CPU seconds of all ranks, and
bytes that the busiest host sent by its link's counters: payload + 0.3 %, or something went around the link.

Collectives (all other rows): see _exchange_collectives.py.

--quick: each row within two minutes.
"""

from __future__ import annotations

from _exchange_collectives import ROWS as COLLECTIVES
from _exchange_steps import ROWS as STEPS
from _report import Row, arguments, report
from volary.lab import LabError

ROWS = STEPS | COLLECTIVES


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(ROWS))
    rows: list[Row] = []
    for name, row in ROWS.items():
        if options.wants(name):
            try:
                rows.append(row(options))
            except LabError as reason:
                print(f"{name}: skipped: {reason}")
    report(rows, options.json)


if __name__ == "__main__":
    main()
