"""The rows of server.py about training: what the server costs a step, and what its models save where workers pause.

fc-step-server: the 137 MB network of exchange.py, 4 hosts at 1 Gbit/s, `bsp` with a server beside each worker against
all-reduce, both `volary train` in labs that take turns; a step is the median of the slowest rank's, without the first.
slow-worker-backup, slow-worker-async, random-pauses-ssp: time to 98 % on MNIST (_server_models.py). One of 4 workers
pauses in each step, or each of them in a quarter of its steps; ratio: the median over the seeds of theirs / ours.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import _exchange_cases as cases
import _in_lab
import _server_models as models
from _report import Options, Row
from volary.run.database.reader import RunReader

COLOCATED = {"exchange": {"name": "server", "servers": "colocated"}}
STEPS, WARM_UP = 14, 4
ROUNDS, QUICK_ROUNDS = 3, 1
EPOCHS = 3.5  # by then nearly all are at 98 %
SEEDS, QUICK_SEEDS = (1, 2, 3), (1,)
FASTER = "at least 1.9"


def _fc_step(options: Options) -> Row:
    """`fc-step-server`. Raises LabError."""
    strategies = {"bsp, 4 colocated servers": COLOCATED, "bsp, all-reduce": cases.FC_1G.strategy}
    found: dict[str, list[float]] = {name: [] for name in strategies}
    for number in range(QUICK_ROUNDS if options.quick else ROUNDS):
        for name in list(strategies)[:: -1 if number % 2 else 1]:
            found[name].append(_step_s(strategies[name]))
            print(f"fc-step-server: {name}: {found[name][-1]:.3f} s a step")
    ours, theirs = found.values()
    return Row(
        name="fc-step-server",
        value=statistics.median(ours),
        unit="s per step",
        peer="ours over all-reduce",
        peer_value=statistics.median(theirs),
        ratio=statistics.median(one / other for one, other in zip(ours, theirs, strict=True)),
        wanted="at most 1.15",
        better="lower",
    )


def _step_s(strategy: Mapping[str, Any]) -> float:
    case = replace(cases.FC_1G, strategy=strategy)
    train = {"steps": STEPS, "device": "cpu", "compare_replicas": "never"}
    checkpoint = {"every": "never", "keep_best": False}
    with tempfile.TemporaryDirectory() as folder:
        directory = _in_lab.run(case.session(folder, train=train, checkpoint=checkpoint), case.rate)
        with RunReader(directory) as reader:
            ends: dict[int, float] = {}
            for row in reader.steps():
                ends[row.step] = max(ends.get(row.step, 0.0), row.ended_at)
    times = [ends[step] for step in sorted(ends)][WARM_UP - 1 :]
    return statistics.median(after - before for before, after in itertools.pairwise(times))


def _paused(name: str, model: str, pauses: Mapping[str, Any], wanted: str, options: Options) -> Row:
    """How much sooner a model is at 98 % than the peer, by seed. Raises LabError, DataError."""
    sides: dict[str, Callable[[int], models.Trained]] = {
        model: lambda seed: models.ours(models.MODELS[model], pauses, EPOCHS, seed),
        models.PEER: lambda seed: models.theirs(pauses, EPOCHS, seed),
    }
    found: dict[str, list[float]] = {side: [] for side in sides}
    _print_pace(name)
    for number, seed in enumerate(QUICK_SEEDS if options.quick else SEEDS):
        for side in list(sides)[:: -1 if number % 2 else 1]:
            trained = sides[side](seed)
            found[side].append(models.reached_or_never_s(trained))
            print(f"{name}: {side}: {_said(trained)}")
    ours, theirs = found.values()
    return Row(
        name=name,
        value=statistics.median(ours),
        unit="s",
        peer=models.PEER,
        peer_value=statistics.median(theirs),
        ratio=statistics.median(other / one for one, other in zip(ours, theirs, strict=True)),
        wanted=wanted,
        better="higher",
    )


def _print_pace(name: str) -> None:
    pace = models.pace()
    exchange_s = pace.step_s - pace.compute_s
    print(
        f"{name}: a step computes for {1000 * pace.compute_s:.0f} ms, the peer's exchange adds {1000 * exchange_s:.0f};"
        f" a pause lasts {1000 * pace.pause_s:.0f} ms"
    )


def _said(trained: models.Trained) -> str:
    reached = f"never in {trained.evaluations[-1].seconds:.1f} s" if trained.reached_s is None else "at {:.1f} s"
    each = ", ".join(f"{one.seconds:.1f} s {one.accuracy:.4f}" for one in trained.evaluations)
    return f"98 % {reached.format(trained.reached_s)} ({each})"


PAUSED = {
    "slow-worker-backup": ("backup-3", models.SLOW, FASTER),
    "slow-worker-async": ("async", models.SLOW, FASTER),
    "random-pauses-ssp": ("ssp-3", models.RANDOM, "at least 1.35"),
}
ROWS: dict[str, Callable[[Options], Row]] = {
    "fc-step-server": _fc_step,
    **{name: partial(_paused, name, *what) for name, what in PAUSED.items()},
}
