"""What does a step take longer for a feature of the trainer: one that is named and does nothing yet, and one that acts?

    python benchmarks/features.py [--quick] [--only NAME] [--json FILE]

One worker trains LeNet, 64 samples a step, in a run as `volary train` makes it, without evaluations and checkpoints.
The same process trains it twice, with the feature and without, a turn each in alternation; a pair is a turn of each.
`idle-...`: the session names the feature, and nothing of it is due in these steps, as an average that begins later,
metrics between two evaluations, factors of 1: "at most 1.01". `idle-nothing` compares a session with itself: what the
machine makes of equal work. `with-...`: it acts in every step; for information, as it does work. A ratio is the median
of the pairs of a start of all processes, and of those the median over three starts (--quick: one).
"""

from __future__ import annotations

import tempfile
from typing import Any

from _driven import driven
from _report import Options, Paired, Row, arguments, of_starts, report
from volary.session.spec import Session

ROWS: dict[str, list[str]] = {  # by name, the overrides that give the feature
    "idle-nothing": [],
    "idle-groups": ["train.parameters=[{match: '*', lr: 1.0}]"],
    "idle-average": ["train.average={name: ema, decay: 0.99, start: 1000000 steps}"],
    "idle-metrics": ["loss={name: cross_entropy, metrics: [f1, confusion]}"],
    "idle-schedule": ["schedule={name: multistep, milestones: [1000000]}"],
    "with-groups": ["train.parameters=[{match: '*.bias', lr: 2.0, weight_decay: 0.0}]"],
    "with-freeze": ["train.freeze=[{match: conv1}]"],
    "with-average": ["train.average={name: ema, decay: 0.99}"],
    "with-smoothing": ["loss={name: cross_entropy, label_smoothing: 0.1}"],
    "with-mixup": ["train.mix=[mixup]"],
    "with-clipping": ["train.clip_norm=1.0"],
    "with-adaptive-clipping": ["train.clip_adaptive=0.01"],
    "with-schedule": ["schedule={name: cosine, steps: 1000000}"],
}


def main() -> None:
    """Run the rows that are asked for."""
    options = arguments(__doc__, list(ROWS))
    report([_row(name, options) for name in ROWS if options.wants(name)], options.json)


def _row(name: str, options: Options) -> Row:
    starts, pairs, turn_s = (1, 9, 0.2) if options.quick else (3, 15, 0.5)
    found = [(_start(ROWS[name], pairs, turn_s), "without it") for _ in range(starts)]
    wanted = "at most 1.01" if name.startswith("idle-") else "for information"
    return of_starts(name, found, "s per step", wanted)


def _start(overrides: list[str], pairs: int, turn_s: float) -> Paired:
    with tempfile.TemporaryDirectory() as folder:
        return Paired(**driven(_session(folder), "_feature_turns:take_turns", [str(pairs), str(turn_s), *overrides]))


def _session(folder: str) -> Session:
    settings: dict[str, Any] = {
        "network": "lenet",
        "data": {"source": {"name": "synthetic", "shape": (1, 28, 28), "samples": 4096}, "batch_size": 64},
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
        "train": {"steps": 10**9, "device": "cpu"},
        "evaluate": {"every": "never"},
        "checkpoint": {"every": "never"},
        # the other's turns must not look like a hang
        "strategy": {"workers": 1, "suspect_after_s": 300, "give_up_after_s": 600},
        "run": {"folder": folder},
    }
    return Session(**settings)


if __name__ == "__main__":
    main()
