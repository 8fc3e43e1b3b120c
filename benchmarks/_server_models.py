"""Trainings with workers that pause, ours by model and the peer's: MNIST, 4 hosts at 1 Gbit/s, in the lab.

A network of 60 thousand parameters, 80 samples a worker and step, SGD without momentum after a warm-up; all validation
images are measured twice an epoch. A pause lasts twice as long as a step computes, all workers at once without pauses,
which is measured first. The peer is DistributedDataParallel over gloo with the same values, batches, pauses and
evaluations; it ends when it is as good as wanted. Seconds count from the first step on, with evaluations; between the
first that is as good as wanted and the one before it, the time is taken in proportion.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import _in_lab
import _mnist
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session.spec import Session

WORKERS, RATE, SHARE = 4, "1gbit", 80
BATCH = WORKERS * SHARE
PER_EPOCH = -(-_mnist.TRAINING_SAMPLES // BATCH)
EVERY = PER_EPOCH // 2
LR = 0.125
WANTED = 0.98
SEEDS = (1, 2, 3)
TIMES = 2  # a pause lasts so many times as long as computing

SLOW: Mapping[str, Any] = {"slow": 2}
RANDOM: Mapping[str, Any] = {"chance": 0.25}
STEADY: Mapping[str, Any] = {}
PEER = "DDP, tuned"
FOUND = "peer.json"  # among its run's results
PACE = "pace"
SERVER = "server"
MODELS: dict[str, Any] = {
    "bsp-allreduce": {"exchange": "allreduce"},
    "bsp": {"consistency": "bsp", "exchange": SERVER},
    "backup-3": {"consistency": {"name": "backup", "k": 3}, "exchange": SERVER},
    "backup-deadline": {"consistency": {"name": "backup", "k": 4, "deadline": "auto"}, "exchange": SERVER},
    "backup-epoch": {"consistency": {"name": "backup", "epoch": 0.75}, "exchange": SERVER},
    "ssp-3": {"consistency": {"name": "ssp", "staleness": 3}, "exchange": SERVER},
    "ssp-8": {"consistency": {"name": "ssp", "staleness": 8}, "exchange": SERVER},
    "async": {"consistency": "async", "exchange": SERVER},
}


@dataclass(frozen=True)
class Evaluation:
    """seconds: since training began. accuracy: share of right answers."""

    seconds: float
    step: int
    accuracy: float


@dataclass(frozen=True)
class Trained:
    """The result of a training. sent_bytes: of a worker, to the end. stale, stalest: mean and most staleness at use."""

    evaluations: list[Evaluation]
    sent_bytes: float = 0.0
    stale: float = 0.0
    stalest: int = 0

    @property
    def accuracy(self) -> float:
        """At the end."""
        return self.evaluations[-1].accuracy

    @property
    def reached_s(self) -> float | None:
        """Seconds until it was as good as wanted for the first time; None: never."""
        return self.seconds_to(WANTED)

    def seconds_to(self, wanted: float) -> float | None:
        """Seconds until this share of answers was right for the first time; None: never."""
        before = Evaluation(0.0, 0, 0.0)
        for each in self.evaluations:
            if each.accuracy >= wanted:
                part = (wanted - before.accuracy) / (each.accuracy - before.accuracy)
                return before.seconds + part * (each.seconds - before.seconds)
            before = each
        return None


def reached_or_never_s(trained: Trained) -> float:
    """Seconds until it was as good as wanted; infinite if it never was."""
    return float("inf") if trained.reached_s is None else trained.reached_s


def times_sooner(one: Trained, other: Trained) -> float:
    """How many times sooner `one` was as good as wanted than `other`; 1 where neither was."""
    one_s, other_s = reached_or_never_s(one), reached_or_never_s(other)
    return 1.0 if one_s == other_s else other_s / one_s


@dataclass(frozen=True)
class Pace:
    """Seconds of a step of the peer, without exchange and with it, nobody pausing."""

    compute_s: float
    step_s: float

    @property
    def pause_s(self) -> float:
        """How long a pause lasts."""
        return TIMES * self.compute_s


@cache
def pace() -> Pace:
    """The pace of this machine. Raises LabError, DataError."""
    _mnist.require()
    with tempfile.TemporaryDirectory() as folder:
        return Pace(**_found(_in_lab.run(_session({}, STEADY, 1, 0, folder), RATE, "_server_peer.py", PACE)))


def theirs(pauses: Mapping[str, Any], epochs: float, seed: int) -> Trained:
    """The peer's, which ends when it is as good as wanted."""
    settings = {"pause_s": pace().pause_s, "seed": seed, **pauses}
    with tempfile.TemporaryDirectory() as folder:
        session = _session({}, settings, epochs, seed, folder)
        found = _found(_in_lab.run(session, RATE, "_server_peer.py", str(WANTED)))
    return Trained([Evaluation(*each) for each in found])


def ours(
    strategy: Mapping[str, Any],
    pauses: Mapping[str, Any],
    epochs: float,
    seed: int,
    lab: Mapping[str, Any] = MappingProxyType({}),
    every: int = EVERY,
) -> Trained:
    """Ours, of all epochs. lab: more of it, see `volary.lab.Lab`. every: steps between two evaluations."""
    settings = {"pause_s": pace().pause_s, "seed": seed, **pauses}
    with tempfile.TemporaryDirectory() as folder:
        return _trained(_in_lab.run(_session(strategy, settings, epochs, seed, folder, every), RATE, lab=lab))


def _found(directory: RunDirectory) -> Any:
    return json.loads((directory.results / FOUND).read_text(encoding="utf-8"))


def _trained(directory: RunDirectory) -> Trained:
    with RunReader(directory) as reader:
        rows = list(reader.steps())
        began = min(row.ended_at - row.step_s for row in rows)
        evaluations = [
            Evaluation(event.at - began, event.step or 0, event.data["accuracy"])
            for event in reader.events(kind="evaluated")
        ]
        ages = [(one.value, one.count) for one in reader.counts() if one.kind == "staleness"]
    count = sum(times for _, times in ages) or 1
    return Trained(
        evaluations,
        sent_bytes=sum(row.sent_bytes for row in rows) / WORKERS,
        stale=sum(age * times for age, times in ages) / count,
        stalest=max((age for age, _ in ages), default=0),
    )


def _session(
    strategy: Mapping[str, Any],
    network: Mapping[str, Any],
    epochs: float,
    seed: int,
    folder: str,
    every: int = EVERY,
) -> Session:
    settings: dict[str, Any] = {
        "network": {"name": f"{_in_lab.HERE / '_pauses.py'}:small", **network},
        "data": {"source": _mnist.SOURCE, "batch_size": BATCH},
        "optimizer": {"name": "sgd", "lr": LR},
        "schedule": {"name": "constant", "warmup": EVERY // 2},
        "train": {"steps": round(epochs * PER_EPOCH), "seed": seed, "device": "cpu", "compare_replicas": "never"},
        "evaluate": {"every": f"{every} steps"},
        "checkpoint": {"every": "never", "keep_best": False},
        "strategy": {"workers": WORKERS, **strategy},
        "run": {"folder": folder},
    }
    return Session(**settings)
