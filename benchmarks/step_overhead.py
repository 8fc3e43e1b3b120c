"""What does Volary's loop cost over a hand-written PyTorch loop?

    python benchmarks/step_overhead.py [--quick] [--only NAME] [--json FILE] [--processors]

Ours is a real run: a driver with its hub and journal, workers on the cores that the local engine gives them, their
heartbeats, and `volary.train.loop.train`, all at its defaults but for evaluations and checkpoints, which nobody makes.
The peer runs in the same processes and takes turns with ours: the same network from the same initial values, the same
batches (64 samples for LeNet, 32 for ResNet-18, over all workers) gathered from tensors in memory, SGD with momentum,
fp32; both read the loss of each step. With 2 workers it is DistributedDataParallel over gloo on loopback. It is tried
with several settings (`PEERS` in _step_turns.py), and measured with the fastest of them; --quick takes the first.
A turn is some tenths of a second of steps and ends when its slowest worker ends; a pair is a turn of each. ratio: the
median of the pairs of a start of all processes, and of those the median over three starts (--quick: one), since where
memory lies differs between starts. --processors: figures are processor seconds of all workers, user and system,
instead of time: what else the machine does counts less.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _driven import driven
from _report import Options, Paired, Row, arguments, of_starts, processors_option, report
from volary.session.spec import Session


@dataclass(frozen=True)
class Case:
    """One row's session. batch_size: samples of a step over all workers. wanted: the bound of ours / theirs."""

    network: str
    shape: tuple[int, ...]
    batch_size: int
    workers: int
    wanted: str


@dataclass(frozen=True)
class Effort:
    """starts: of all processes. pairs: of turns, in each start. trials: turns of each peer before one is chosen.

    turn_s: about how long a turn is; at least one step. pairs_s: there are fewer pairs if they would take longer.
    """

    starts: int
    pairs: int
    trials: int
    turn_s: float
    pairs_s: float


LENET, RESNET = ("lenet", (1, 28, 28), 64), ("resnet18", (3, 32, 32), 32)
MANY = (f"{Path(__file__).with_name('_networks.py')}:many_gains", (256,), 16)
CASES = {
    "lenet-1": Case(*LENET, workers=1, wanted="at most 1.03"),
    "lenet-2": Case(*LENET, workers=2, wanted="at most 1.00"),
    "resnet18-1": Case(*RESNET, workers=1, wanted="at most 1.03"),
    "resnet18-2": Case(*RESNET, workers=2, wanted="at most 1.00"),
    "many-tensors-2": Case(*MANY, workers=2, wanted="at most 1.00"),
}
QUICK = Effort(starts=1, pairs=7, trials=0, turn_s=0.2, pairs_s=15)
FULL = Effort(starts=3, pairs=15, trials=3, turn_s=0.6, pairs_s=120)


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES), processors_option)
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    effort = QUICK if options.quick else FULL
    processors = options.more.processors
    starts = [_start(case, effort, processors=processors) for _ in range(effort.starts)]
    return of_starts(name, starts, "processor s per step" if processors else "s per step", case.wanted)


def _start(case: Case, effort: Effort, *, processors: bool) -> tuple[Paired, str]:
    """One run, driven as `volary train` drives it; its workers' job takes turns with the peer. And the peer's name."""
    with tempfile.TemporaryDirectory() as folder:
        words = [str(number) for number in (effort.pairs, effort.trials, effort.turn_s, effort.pairs_s)]
        words.append("processors" if processors else "time")
        found = driven(_session(case, folder), "_step_turns:take_turns", words)
        return Paired(**found["paired"]), found["peer"]


def _session(case: Case, folder: str) -> Session:
    settings: dict[str, Any] = {
        "network": case.network,
        "data": {
            "source": {"name": "synthetic", "shape": case.shape, "samples": 4096},
            "batch_size": case.batch_size,
        },
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
        "train": {"steps": 10**9, "device": "cpu"},
        "evaluate": {"every": "never"},
        "checkpoint": {"every": "never"},
        # the peer's turns must not look like a hang
        "strategy": {"workers": case.workers, "suspect_after_s": 300, "give_up_after_s": 600},
        "run": {"folder": folder},
    }
    return Session(**settings)


if __name__ == "__main__":
    main()
