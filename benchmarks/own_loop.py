"""What does a loop of one's own cost beside a session's loop, DistributedDataParallel's script, and its loader alone?

    python benchmarks/own_loop.py [--quick] [--only NAME] [--json FILE] [--processors]

Each row is a real run of a program that calls `volary.init()` (_own_turns.py): `volary launch` starts its workers on
this machine, `volary lab` those of `early-1g-2` on 2 hosts with links of 1 Gbit/s, which is skipped, with the reason,
where there cannot be a lab. In each worker both sides take turns, with the same network, initial values, batches from
tensors in memory, SGD with momentum (fused), fp32, and `loss.item()` in each step; what watches optimisers for our loop
is away in the peer's turns. LeNet has 64 samples a step on 1 x 28 x 28, ResNet-18 has 32 on 3 x 32 x 32, over all
workers; fc is the network of 137 MB of exchange.py, with 16 samples a rank and one torch thread.

`lenet-1`, `lenet-2`, `resnet18-1`, `resnet18-2`: ours over `worker.feed(loader)`, against `volary.train.loop.train`
with a session's feed. `lenet-ddp-2`, `resnet18-ddp-2`: ours against DistributedDataParallel over gloo (tuned as in
step_overhead.py), over the same loader with a DistributedSampler; `many-tensors-ddp-2`: of 1,000 tensors of 1 KB.
`early-1g-2`: the same with `early_update=True`; a turn of it ends when all updates are made. `feed`:
`worker.feed(loader)` of a world of one against the loader, batches of 64 images that torch's own collate_fn makes of
samples, nothing else.

A turn is some tenths of a second, or some steps if these take longer, and ends when its slowest worker ends; a pair is
a turn of each, and who is first changes. ratio: the median of the pairs of a start of all processes, and of those the
median over three starts (--quick: one). --processors: processor seconds of all workers instead of time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from _report import Paired, Row, arguments, of_starts, processors_option, report

PROGRAM = Path(__file__).with_name("_own_turns.py")
LAB: tuple[str, ...] = ("lab", "--hosts", "2", "--rate", "1gbit", "--pin", "--", sys.executable)
AT_MOST_S = 1800.0


@dataclass(frozen=True)
class Case:
    """One row. network: of _own_turns.py. against: the peer there. rate: whether it runs in a lab."""

    network: str
    against: str
    workers: int
    wanted: str
    in_lab: bool = False


@dataclass(frozen=True)
class Effort:
    """starts: of all processes. pairs: of turns, in each start. turn_s: about how long one is; steps: at least."""

    starts: int
    pairs: int
    turn_s: float
    steps: int = 1


CASES = {
    "lenet-1": Case("lenet", "session", 1, "at most 1.01"),
    "lenet-2": Case("lenet", "session", 2, "at most 1.01"),
    "resnet18-1": Case("resnet18", "session", 1, "at most 1.01"),
    "resnet18-2": Case("resnet18", "session", 2, "at most 1.01"),
    "lenet-ddp-2": Case("lenet", "ddp", 2, "at most 1.00"),
    "resnet18-ddp-2": Case("resnet18", "ddp", 2, "at most 1.00"),
    "many-tensors-ddp-2": Case("many", "ddp", 2, "at most 1.00"),
    "early-1g-2": Case("fc", "ddp", 2, "at most 0.80", in_lab=True),
    "feed": Case("lenet", "loader", 1, "at most 1.01"),
}
QUICK = Effort(starts=1, pairs=5, turn_s=0.2)
FULL = Effort(starts=3, pairs=15, turn_s=0.6)
IN_LAB = {True: Effort(starts=1, pairs=2, turn_s=4.0, steps=5), False: Effort(starts=3, pairs=5, turn_s=10.0, steps=10)}


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(CASES), processors_option)
    rows = []
    for name, case in CASES.items():
        if options.wants(name):
            effort = IN_LAB[options.quick] if case.in_lab else QUICK if options.quick else FULL
            try:
                rows.append(_row(name, case, effort, processors=options.more.processors))
            except _NoLabError as reason:
                print(f"{name}: skipped: {reason}")
    report(rows, options.json)


class _NoLabError(Exception):
    """There cannot be a lab here."""


def _row(name: str, case: Case, effort: Effort, *, processors: bool) -> Row:
    starts = [_start(case, effort, processors=processors) for _ in range(effort.starts)]
    unit = "s per batch" if case.against == "loader" else "s per step"
    return of_starts(name, starts, f"processor {unit}" if processors else unit, case.wanted)


def _start(case: Case, effort: Effort, *, processors: bool) -> tuple[Paired, str]:
    """One run of the program, and the peer's name."""
    with tempfile.TemporaryDirectory() as folder:
        if case.in_lab:
            _require_lab()
            command = LAB
        else:
            # the peer's turns must not look like a hang
            command = ("launch", "--quiet", f"strategy.workers={case.workers}", "strategy.give_up_after_s=600")
        work = json.dumps(asdict(case) | asdict(effort) | {"processors": processors})
        subprocess.run(
            [sys.executable, "-m", "volary", *command, str(PROGRAM), work], cwd=folder, check=True, timeout=AT_MOST_S
        )
        found = json.loads(Path(folder, "turns.json").read_text(encoding="utf-8"))
        return Paired(**found["paired"]), found["peer"]


def _require_lab() -> None:
    from volary.lab import LabError
    from volary.lab.needs import needs_user_namespace

    try:
        needs_user_namespace()
    except LabError as reason:
        raise _NoLabError(str(reason)) from None


if __name__ == "__main__":
    main()
