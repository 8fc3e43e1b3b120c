"""cifar-time-to-accuracy of exchange.py: how long until the accuracy that DistributedDataParallel has after 3 epochs?

AlexNet-like on CIFAR-10, 4 hosts, 100 Mbit/s, 16 samples a rank, lossless. Both sides begin with the same values, get
the same batches, and are evaluated twice an epoch on all validation images. The accuracy is what the peer has after 3
epochs; the time of a side is that of its steps until the first evaluation that is as good. The peer trains on hosts
without a limit on the link, since half a day would pass otherwise, and its time is these steps times the median of its
step at 100 Mbit/s, measured in turns as in the other rows. Ours trains at 100 Mbit/s, for 3.5 epochs, and its time is
what all these steps took, with the first ones, before `auto` has chosen. Neither evaluations nor starting count.
--quick: a part of the images, 20 steps an epoch; five minutes. A full run takes about an hour.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence

import _cifar
import _exchange_cases as cases
import _in_lab
from _exchange_found import median
from _exchange_steps import found_in
from _report import Options, Row
from volary.data.sources.images import Images
from volary.run.database.reader import RunReader
from volary.session.spec import Session

EPOCHS, AT_MOST_EPOCHS, EVALUATIONS = 3, 3.5, 2  # evaluations: an epoch
RATE = "100mbit"
NAME = "cifar-time-to-accuracy"

Accuracies = Sequence[tuple[int, float]]  # steps done and share of right answers


def _row(options: Options) -> Row:
    Images(**_cifar.SETTINGS).check()
    case = cases.Case(
        network={"name": cases.ALEXNET, "classes": 10},
        source=_cifar.IN_PART if options.quick else _cifar.WHOLE,
        share=16,
        hosts=4,
        rate=RATE,
        **cases.EXACTLY,
    )
    steps = -(-(_cifar.PART["train"] if options.quick else _cifar.TRAINING_SAMPLES) // (case.share * case.hosts))
    found = found_in(case, quick=options.quick)
    step_s = median(found.theirs["DDP"]).seconds
    theirs = _theirs(case, steps)
    wanted = theirs[-1][1]
    their_steps = first_as_good(theirs, wanted)
    ours, seconds = _ours(case, steps)
    our_steps = first_as_good(ours, wanted)
    print(f"{NAME}: accuracy {wanted:.4f} after {EPOCHS} epochs of {steps} steps; by step:")
    print("  ours:", _said(ours))
    print(f"  {found.peers['DDP']}:", _said(theirs), f"; {step_s:.2f} s a step at {RATE}")
    assert their_steps is not None
    their_s = their_steps * step_s
    our_s = sum(seconds[:our_steps])
    if our_steps is None:
        print(f"  ours was never as good in {len(seconds)} steps")
    return Row(
        name=NAME,
        value=our_s,
        unit="s",
        peer=found.peers["DDP"],
        peer_value=their_s,
        ratio=0.0 if our_steps is None else their_s / our_s,
        wanted="at least 20",
        better="higher",
    )


def first_as_good(accuracies: Accuracies, wanted: float) -> int | None:
    """The steps after which the accuracy was `wanted` or better for the first time; None: never."""
    return next((step for step, accuracy in accuracies if accuracy >= wanted), None)


def _ours(case: cases.Case, steps: int) -> tuple[Accuracies, list[float]]:
    """The accuracies of `volary train`, and the seconds of each step."""
    with tempfile.TemporaryDirectory() as folder:
        directory = _in_lab.run(_session(case, folder, steps, round(AT_MOST_EPOCHS * steps)), case.rate)
        with RunReader(directory) as reader:
            return reader.metrics()["accuracy"], [row.step_s for row in reader.steps(rank=0)]


def _theirs(case: cases.Case, steps: int) -> Accuracies:
    """The accuracies of DistributedDataParallel, where no link holds it up."""
    with tempfile.TemporaryDirectory() as folder:
        session = _session(case, folder, steps, EPOCHS * steps)
        directory = _in_lab.run(session, None, "_ddp_training.py")
        found = json.loads((directory.results / "accuracies.json").read_text(encoding="utf-8"))
        return [(step, accuracy) for step, accuracy in found]


def _session(case: cases.Case, folder: str, epoch: int, steps: int) -> Session:
    """One side's, of so many steps; epoch: steps of one."""
    return case.session(
        folder,
        train={"steps": steps, "device": "cpu", "compare_replicas": "never"},
        evaluate={"every": f"{epoch // EVALUATIONS} steps"},
    )


def _said(accuracies: Accuracies) -> str:
    return ", ".join(f"{step} {accuracy:.4f}" for step, accuracy in accuracies)


ROWS: dict[str, Callable[[Options], Row]] = {NAME: _row}
