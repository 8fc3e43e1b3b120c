"""Trainings that differ in their strategy alone, and what that costs in accuracy: for accuracy.py and consistency.py.

A perceptron with one hidden layer on MNIST, 64 samples a step, plain SGD. MNIST's files are looked for in
../shared/data/mnist beside the checkout; where they are not, the digits that come with Volary are taken, whose 360
validation samples are too few to tell half a point.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import _mnist
from _in_lab import HERE
from _report import Options, Row
from volary import Session
from volary.run.database.reader import RunReader

SEEDS, STEPS = (1, 2, 3), 1000
QUICK_SEEDS, QUICK_STEPS = (1,), 200
WITHIN = "at most 0.5"  # points
WORSE = "at least 0.5"


@dataclass(frozen=True, eq=False)
class Case:
    """A strategy whose accuracy is asked for. wanted: how much worse than the peer, in points."""

    strategy: Mapping[str, Any]
    wanted: str = WITHIN


@dataclass(frozen=True)
class Trained:
    """The results of a strategy, seed by seed. accuracies: in percent; sent_bytes: of a worker, by the step."""

    accuracies: list[float]
    sent_bytes: float

    @property
    def mean(self) -> float:
        """The mean of all seeds."""
        return statistics.mean(self.accuracies)


def row(name: str, case: Case, peer: tuple[str, Case], options: Options) -> Row:
    """The row of a case; prints the least and most of its seeds, and the bytes that a worker sent in a step."""
    exact, found = trained(peer[1], quick=options.quick), trained(case, quick=options.quick)
    print(
        f"{name}: {found.mean:.2f} % ({min(found.accuracies):.2f} to {max(found.accuracies):.2f}),"
        f" {exact.mean - found.mean:+.2f} points lost; a worker sent {found.sent_bytes / 1e3:.1f} KB a step",
        flush=True,
    )
    return Row(
        name=name,
        value=found.mean,
        unit="% right",
        peer=peer[0],
        peer_value=exact.mean,
        ratio=exact.mean - found.mean,
        wanted=case.wanted,
        better="higher" if case.wanted == WORSE else "lower",
    )


@cache
def trained(case: Case, *, quick: bool) -> Trained:
    """Train with each seed."""
    seeds, steps = (QUICK_SEEDS, QUICK_STEPS) if quick else (SEEDS, STEPS)
    accuracies, sent = [], []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            result = _session(case, seed, steps, folder).train(show=False)
            accuracies.append(100 * result.metrics["accuracy"][-1][1])
            with RunReader(result.directory) as reader:
                rows = [row.sent_bytes for row in reader.steps()]
                sent.append(statistics.mean(rows[len(rows) // 2 :]))
    return Trained(accuracies, statistics.mean(sent))


def _session(case: Case, seed: int, steps: int, folder: str) -> Session:
    settings: dict[str, Any] = {
        "network": f"{HERE / '_networks.py'}:perceptron",
        "data": {"source": _mnist.SOURCE if _mnist.FOLDER.is_dir() else "digits", "batch_size": 64},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "train": {"steps": steps, "seed": seed, "device": "cpu"},
        "evaluate": {"every": f"{steps} steps"},
        "checkpoint": {"every": "never"},
        "strategy": {"workers": 2, **case.strategy},
        "run": {"folder": folder},
    }
    return Session(**settings)
