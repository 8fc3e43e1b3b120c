"""What do codecs cost in accuracy?

    python benchmarks/accuracy.py [--quick] [--only NAME] [--json FILE]

The same training with every codec at its defaults, with factors, with onebit without error feedback, and with
none: a perceptron with one hidden layer on MNIST, 2 workers on this machine, 64 samples a step, plain SGD, where what
error feedback does is seen best. MNIST's files are looked for in ../shared/data/mnist beside the checkout; where they
are not, the digits that come with Volary are taken, whose 360 held-back samples are too few to tell half a point. A
training is 1000 steps, done with three seeds (--quick: 200 steps, one seed); nothing but the strategy differs. value
and peer_value: the mean accuracy on the held-back samples, in percent, of this way and of none. ratio: the difference
of the two in points, positive where accuracy was lost. Above the table stand, of each, the least and most of its seeds,
and the bytes that a worker sent in a step.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from _report import Options, Row, arguments, report
from volary import Session
from volary.codec import ROOM
from volary.run.database.reader import RunReader

MNIST = Path(__file__).parents[2] / "shared" / "data" / "mnist"
WORKERS = 2
SEEDS, STEPS = (1, 2, 3), 1000
QUICK_SEEDS, QUICK_STEPS = (1,), 200
NONE = "none"
WITHIN = "at most 0.5"  # points
WORSE = "at least 0.5"


@dataclass(frozen=True)
class Case:
    """A strategy whose accuracy is asked for. wanted: how much worse than without a codec, in points."""

    strategy: Mapping[str, Any]
    wanted: str = WITHIN


@dataclass(frozen=True)
class Trained:
    """What came of a strategy, seed by seed. accuracies: in percent; sent_bytes: of a worker, by the step."""

    accuracies: list[float]
    sent_bytes: float

    @property
    def mean(self) -> float:
        """Of all seeds."""
        return statistics.mean(self.accuracies)


CASES = {
    # in shared memory nothing would be sent
    NONE: Case({"exchange": {"name": "allreduce", "route": "torch"}}),
    **{name: Case({"codec": name}) for name in ROOM.names() if not ROOM.load(name)().chooses and name != NONE},
    "onebit-without-feedback": Case({"codec": {"name": "onebit", "feedback": False}}, WORSE),
    "factors": Case({"codec": "factors", "exchange": {"name": "allreduce", "route": "torch"}}),
}


def main() -> None:
    """Train all that are asked for, and none, which they are compared with."""
    options = arguments(__doc__, list(CASES))
    report([_row(name, case, options) for name, case in CASES.items() if options.wants(name)], options.json)


def _row(name: str, case: Case, options: Options) -> Row:
    exact, found = _trained(NONE, quick=options.quick), _trained(name, quick=options.quick)
    print(
        f"{name}: {found.mean:.2f} % ({min(found.accuracies):.2f} to {max(found.accuracies):.2f}),"
        f" {exact.mean - found.mean:+.2f} points lost; a worker sent {found.sent_bytes / 1e3:.1f} KB a step"
    )
    return Row(
        name=name,
        value=found.mean,
        unit="% right",
        peer=NONE,
        peer_value=exact.mean,
        ratio=exact.mean - found.mean,
        wanted=case.wanted,
        better="higher" if case.wanted == WORSE else "lower",
    )


@cache
def _trained(name: str, *, quick: bool) -> Trained:
    seeds, steps = (QUICK_SEEDS, QUICK_STEPS) if quick else (SEEDS, STEPS)
    accuracies, sent = [], []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            result = _session(CASES[name].strategy, seed, steps, folder).train(show=False)
            accuracies.append(100 * result.metrics["accuracy"][-1][1])
            with RunReader(result.directory) as reader:
                sent.append(statistics.mean(row.sent_bytes for row in reader.steps(after=steps // 2)))
    return Trained(accuracies, statistics.mean(sent))


def _session(strategy: Mapping[str, Any], seed: int, steps: int, folder: str) -> Session:
    mnist = {"name": "idx", "folder": str(MNIST), "mean": 0.1307, "std": 0.3081}
    settings: dict[str, Any] = {
        "network": f"{Path(__file__).parent / '_networks.py'}:perceptron",
        "data": {"source": mnist if MNIST.is_dir() else "digits", "batch_size": 64},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "train": {"steps": steps, "seed": seed, "device": "cpu"},
        "evaluate": {"every": f"{steps} steps"},
        "checkpoint": {"every": "never"},
        "strategy": {"workers": WORKERS, **strategy},
        "run": {"folder": folder},
    }
    return Session(**settings)


if __name__ == "__main__":
    main()
