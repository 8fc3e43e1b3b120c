"""The rows `partition-auto` and `predicted` of partitions.py: is what `auto` takes the quickest, and by how much?

Two workers train three networks with each partition that they can be cut by, in turns: a perceptron of two layers,
AlexNet-like, and a transformer. `partition-auto`: the step with the partition that `auto` takes beside that with the
quickest one, of the network for which that is most. `predicted`: the ratio of a partition's step to that with `data`,
as measured and as predicted; how far these are apart where they are furthest (1: nowhere). Steps share this machine's
cores; processor seconds of a whole run, with its start, are printed beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import torch

from _report import Options, Row
from _whole_runs import trained
from volary import Session
from volary.train.model import build_model
from volary.train.trial import try_session
from volary.train.trying.partition_choice import Predicted

HERE = Path(__file__).resolve().parent
WORKERS, WARM_UP = 2, 3
AUTO_WANTED, PREDICTED_WANTED = "at most 1.05", "for information"
TOKENS = {"name": "synthetic", "kind": "tokens", "shape": (64,), "classes": 65, "samples": 512}


def _values(shape: tuple[int, ...], classes: int) -> dict[str, Any]:
    return {"name": "synthetic", "shape": shape, "classes": classes, "samples": 512}


NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "perceptron": ({"name": f"{HERE}/_parts_bytes.py:perceptron"}, _values((4096,), 4096)),
    "AlexNet-like": ({"name": f"{HERE}/_networks.py:alexnet_like"}, _values((3, 32, 32), 100)),
    "transformer": ({"name": "gpt", "layers": 4, "heads": 8, "width": 256, "dropout": 0.0, "tied": False}, TOKENS),
}


@dataclass(frozen=True)
class Found:
    """A network's findings: the prediction, and by the partition's name the median step and processor seconds."""

    predicted: Predicted
    step_s: dict[str, float]
    cpu_s: dict[str, float]

    @property
    def auto(self) -> str:
        return self.predicted.own.named

    @property
    def quickest(self) -> str:
        return min(self.step_s, key=lambda name: self.step_s[name])

    @property
    def apart(self) -> float:
        """How far measured and predicted ratios to `data` are apart at most."""
        predicted = {one.named: one.step_s for one in self.predicted.legal}
        ratios = [self.step_s[name] / self.step_s["data"] * predicted["data"] / predicted[name] for name in self.step_s]
        return max(max(ratio, 1 / ratio) for ratio in ratios)


def _session(name: str, partition: Any, steps: int) -> Session:
    network, source = NETWORKS[name]
    return Session(
        network=network,
        data={"source": source, "batch_size": 16},
        train={"steps": steps + WARM_UP, "device": "cpu", "compare_replicas": "never", "histograms": "never"},
        evaluate={"every": "never"},
        checkpoint={"every": "never"},
        strategy={"workers": WORKERS, "partition": partition},
    )


@cache
def _found(name: str, quick: bool) -> Found:
    session = _session(name, "auto", 1)
    model = build_model(session, torch.device("cpu"))
    predicted = try_session(model, torch.device("cpu"), WORKERS, started=False).predicted
    assert predicted is not None, "each of these networks can be looked at layer by layer"
    steps: dict[str, list[float]] = {one.named: [] for one in predicted.legal}
    cpu_s = dict.fromkeys(steps, 0.0)
    for _ in range(1 if quick else 3):  # in turns
        for one in predicted.legal:
            seconds, spent = trained(_session(name, one.partition, 4 if quick else 12), WARM_UP)
            steps[one.named] += seconds
            cpu_s[one.named] += spent
    found = Found(predicted, {one: median(seconds) for one, seconds in steps.items()}, cpu_s)
    for one in predicted.legal:
        taken = ", which auto takes" if one.named == found.auto else ""
        print(
            f"  {name}, {one.named}{taken}: {found.step_s[one.named]:.3g} s a step, {one.step_s:.3g} predicted; "
            f"{cpu_s[one.named]:.3g} processor seconds"
        )
    return found


def _auto(options: Options) -> Row:
    every = [_found(name, options.quick) for name in NETWORKS]
    worst = max(every, key=lambda one: one.step_s[one.auto] / one.step_s[one.quickest])
    ours, best = worst.step_s[worst.auto], worst.step_s[worst.quickest]
    return Row("partition-auto", ours, "s a step", worst.quickest, best, ours / best, AUTO_WANTED, "lower")


def _predicted(options: Options) -> Row:
    apart = max(_found(name, options.quick).apart for name in NETWORKS)
    return Row("predicted", apart, "times apart", "as predicted", 1.0, apart, PREDICTED_WANTED, "lower")


ROWS = {"partition-auto": _auto, "predicted": _predicted}
