"""What does the exchange of gradients cost, and what do its parts carry, beside what a user would take instead?

    python benchmarks/exchange.py [--quick] [--only NAME] [--json FILE]

Rows between hosts are measured in the lab (docs/lab.md): hosts are namespaces of this machine. Where there cannot be a
lab they are skipped, and the reason is printed. limit: bytes that have to pass the slowest link / (0.957 x its rate),
0.957 being what TCP can carry.

Steps (`fc-...`, `resnet-...`, `lstm-...`, `gpt-...`): ours is `volary.train.loop.train` in a real run, at its defaults
but for evaluations, checkpoints and comparisons of replicas, which nobody makes, and `strategy.codec`: none, or auto
where a row says lossless, or auto with a codec allowed where it says lossy (_exchange_cases.py). The peer is
DistributedDataParallel over gloo, in the same processes, on a copy of the network, with batches of the same kind from
memory; it is tried with several settings (`PEERS` in _exchange_peers.py), and measured with the fastest; --quick, and
where the link allows fewer than ten steps in a turn, takes the first. Its hooks are peers of their own: fp16, and
PowerSGD of rank 2 with all gradients in one bucket. A turn is ten steps or more, or fewer where they would take longer
than 40 s (--quick: 15 s), and ends when on all ranks everything is sent, received and applied. compute: a step without
exchange, all ranks at once: ours as a run of one worker, or the peer's under no_sync, whichever is faster. limit counts
the bytes that ours had to send on the way it chose, by its own account. fc is AlexNet-like (34 million parameters, 16
samples a rank), resnet has the widths of ResNet-18 (11 million, 8 samples a rank), lstm is the zoo's language model (20
million, 10,000 words, 20 sequences of 35 a rank), gpt is nanoGPT's character model (10.7 million, 65 symbols, 4
sequences of 128 a rank), dilated is 20 blocks of gated 1-d convolutions (84 tensors, 2.4 million, 2 sequences of 512 a
rank), mixer an MLP-mixer of 8 blocks (17 million, 8 images a rank); SGD with momentum, fp32; one process a host, with
one torch thread, kept to its share of the cores as `volary train` does. Who is first changes with every round. ratio:
the median over the rounds of ours / theirs, or of theirs / ours where `wanted` says how many times quicker ours is.
Ours is compared with max(compute, limit) in `fc-1g`, `resnet-1g-2`, `gpt-100m`, `dilated-100m`, `lstm-100m-lossy` and
rows that end in `-bound`, with compute in `fc-100m-lossy`, `gpt-1g-lossy` and `gpt-100m-lossy`, with a hook in rows
that end in `-hook` (the quicker of the two), `fc-100m-lossy-powersgd`, `dilated-...-lossy` and `mixer-100m-lossy`,
otherwise with DistributedDataParallel. Above the table stand, for all sides, seconds, CPU seconds of all ranks, and
bytes that the busiest host sent by its link's counters: payload + 0.3 %, or something went around the link.

CPU seconds (`cpu-...`): see _exchange_cpu.py. Choices (`auto-best-...`): see _exchange_best.py.
Workers that keep shares (`sharded-...`): see _exchange_sharded.py.
Time to an accuracy (`cifar-time-to-accuracy`): see _time_to_accuracy.py.
Collectives (all other rows): see _exchange_collectives.py.

--quick: each row within two minutes, those at 100 Mbit/s or with auto within three to four, `cifar-time-to-accuracy`
and `auto-best-...` within eight.
"""

from __future__ import annotations

from _exchange_best import ROWS as BEST
from _exchange_collectives import ROWS as COLLECTIVES
from _exchange_cpu import ROWS as CPU
from _exchange_sharded import ROWS as SHARDED
from _exchange_steps import ROWS as STEPS
from _report import Row, arguments, report
from _time_to_accuracy import ROWS as TIMES
from volary.errors import DataError
from volary.lab import LabError

ROWS = STEPS | CPU | BEST | SHARDED | TIMES | COLLECTIVES


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(ROWS))
    rows: list[Row] = []
    for name, row in ROWS.items():
        if options.wants(name):
            try:
                rows.append(row(options))
            except (LabError, DataError) as reason:
                print(f"{name}: skipped: {reason}")
    report(rows, options.json)


if __name__ == "__main__":
    main()
