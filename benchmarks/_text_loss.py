"""`text-...` of consistency.py: does a model of local steps learn text as well as bsp does?

A GPT of 112 thousand parameters on tiny-shakespeare, 4 workers on this machine, 1000 steps of 32 sequences of 64
characters, AdamW with a rate that grows over 50 steps and falls along a cosine: the loss on the last hundredth of the
text in the end, the mean over three seeds (--quick: one seed). ratio: the loss by that of bsp.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

import _shakespeare
from _local_models import BSP, MODELS
from _report import Options, Row
from volary import Session

SEEDS, QUICK_SEEDS, STEPS = (1, 2, 3), (1,), 1000
# with AdamW a momentum of 0.9 was too much already at half this rate
OUTER = {"name": "sgd", "lr": 1.0, "momentum": 0.3, "nesterov": True}


def row(name: str, options: Options) -> Row:
    """Train with the model called `name`, and with bsp. Raises DataError."""
    _shakespeare.require()
    ours, exact = losses(name, quick=options.quick), losses(BSP, quick=options.quick)
    value, peer = statistics.mean(ours), statistics.mean(exact)
    seeds = ", ".join(f"{one:.4f}" for one in ours)
    print(f"text-{name}: {seeds}; bsp {', '.join(f'{one:.4f}' for one in exact)}", flush=True)
    return Row(
        name=f"text-{name}",
        value=value,
        unit="nats a character",
        peer=BSP,
        peer_value=peer,
        ratio=value / peer,
        wanted="at most 1.01",
        better="lower",
    )


@cache
def losses(name: str, *, quick: bool) -> list[float]:
    """The loss on validation data in the end, seed by seed."""
    found = []
    for seed in QUICK_SEEDS if quick else SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            result = _session(_strategy(name), seed, folder).train(show=False)
            found.append(result.metrics["loss"][-1][1])
    return found


def _strategy(name: str) -> Mapping[str, Any]:
    strategy = MODELS[name]
    consistency = strategy.get("consistency")
    if not isinstance(consistency, dict) or "outer" not in consistency:
        return strategy
    return {**strategy, "consistency": consistency | {"outer": OUTER}}


def _session(strategy: Mapping[str, Any], seed: int, folder: str) -> Session:
    settings: dict[str, Any] = {
        "network": {"name": "gpt", "layers": 2, "heads": 4, "width": 64, "dropout": 0.0},
        "data": {"source": _shakespeare.SOURCE, "batch_size": 32},
        "optimizer": {"name": "adamw", "lr": 8e-3},  # of 0.004 and 0.008 the better one for bsp
        "schedule": {"name": "cosine", "warmup": 50},
        "train": {"steps": STEPS, "seed": seed, "device": "cpu"},
        "evaluate": {"every": f"{STEPS} steps"},
        "checkpoint": {"every": "never"},
        "strategy": {"workers": 4, **strategy},
        "run": {"folder": folder},
    }
    return Session(**settings)
