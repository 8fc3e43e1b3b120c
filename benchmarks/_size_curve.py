"""The row `size-curve` of partitions.py: how does a step grow with a network's width, over one to four workers?

A perceptron of two layers of WIDTH x WIDTH, 16 samples a step, with `partition: tensor` and `hybrid`, widths of 1024 to
8192 (with `--quick` 1024 and 2048, and one and two workers): seconds of a step, the median one's of the slower worker,
and processor seconds of the whole run, with its start, are printed. The row is the widest one on most workers beside
one worker. Before it, a width that is above the budget of one worker's memory (`strategy.memory`) is refused with
`data`, and trains with `tensor`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import torch

from _report import Options, Row
from _whole_runs import trained
from volary import Session
from volary.train.model import build_model
from volary.train.trial import try_session

HERE = Path(__file__).resolve().parent
WARM_UP = 2
BUDGET = 0.75  # of what one worker would need with all of the network


def _session(width: int, workers: int, partition: Any, steps: int, **strategy: Any) -> Session:
    return Session(
        network={"name": f"{HERE}/_networks.py:square_perceptron", "width": width},
        data={"source": {"name": "synthetic", "shape": (width,), "classes": width, "samples": 64}, "batch_size": 16},
        train={"steps": steps + WARM_UP, "device": "cpu", "compare_replicas": "never", "histograms": "never"},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        strategy={"workers": workers, "partition": partition, **strategy},
    )


def _trained(width: int, workers: int, partition: str, steps: int, **strategy: Any) -> float:
    """Seconds of the median step; printed with processor seconds. Raises CalledProcessError for a run that fails."""
    steps_s, cpu_s = trained(_session(width, workers, partition, steps, **strategy), WARM_UP)
    found = median(steps_s)
    print(f"  {width} wide, {workers} workers, {partition}: {found:.3g} s a step; {cpu_s:.3g} processor seconds")
    return found


def _above_a_budget(width: int, workers: int, steps: int) -> None:
    """Train what does not fit into one worker's budget."""
    whole = _session(width, workers, "data", steps)
    model = build_model(whole, torch.device("cpu"))
    predicted = try_session(model, torch.device("cpu"), workers, started=False).predicted
    assert predicted is not None, "two linear layers can be looked at"
    needed = next(one.memory.total for one in predicted.legal if one.named == "data")
    budget = f"{int(BUDGET * needed / 1e6)}MB"
    try:
        _trained(width, workers, "data", steps, memory=budget)
    except subprocess.CalledProcessError as error:
        why = next(line for line in error.stderr.splitlines() if "strategy.memory is" in line)
        print(f"  {width} wide, data: refused: {why}")
    else:
        raise AssertionError("it fits into the budget")
    _trained(width, workers, "tensor", steps, memory=budget)


def _row(options: Options) -> Row:
    widths, most, steps = ((1024, 2048), 2, 4) if options.quick else ((1024, 2048, 4096, 8192), 4, 10)
    found = {
        (width, workers, partition): _trained(width, workers, partition, steps)
        for width in widths
        for workers in range(1, most + 1)
        for partition in ("tensor", "hybrid")
    }
    _above_a_budget(widths[-1], most, steps)
    ours, alone = (found[widths[-1], workers, "tensor"] for workers in (most, 1))
    return Row("size-curve", ours, "s a step", "one worker", alone, ours / alone, "for information", "lower")


ROWS = {"size-curve": _row}
