"""`text-...` of consistency.py: does a model of local steps learn text as well as bsp does?

A GPT of 112 thousand parameters on tiny-shakespeare, 4 workers on this machine, 32 thousand sequences of 64 characters
in 1000 steps, AdamW with a rate that grows over 50 steps and falls along a cosine: the loss on the last hundredth of
the text in the end, the mean over three seeds (--quick: one seed). Hogwild has threads of one worker, each of which
updates by 8 sequences. ratio: the loss by that of bsp.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import _shakespeare
from _local_models import BEHIND, BSP, MODELS, NOLOCO
from _report import Options, Row
from volary import Session

SEEDS, QUICK_SEEDS, SEQUENCES = (1, 2, 3), (1,), 32_000


@dataclass(frozen=True)
class Case:
    """batch: sequences of an update. lr: of 0.004 and 0.008 the better one for bsp."""

    strategy: Mapping[str, Any]
    batch: int = 32
    lr: float = 8e-3


# a momentum that leaves steps as long as they are: with AdamW at this rate longer ones are too long
OUTER = {"name": "sgd", "lr": 0.8, "momentum": 0.2, "nesterov": True}
DILOCO = {"name": "local", "period": 2, "outer": OUTER}
CASES = {name: Case(strategy) for name, strategy in MODELS.items()} | {
    "local": Case({"consistency": {"name": "local", "period": 2}}),
    "diloco": Case({"consistency": DILOCO}),
    "streaming": Case({"consistency": DILOCO | {"fragments": 2, "alpha": 0.5}, "exchange": BEHIND}),
    "eager": Case({"consistency": DILOCO | {"fragments": 2, "eager": True}, "exchange": BEHIND}),
    "quorum": Case({"consistency": {"name": "local", "period": 2, "quorum": 3, "grace": 1.0}, "exchange": "server"}),
    "elastic": Case({"consistency": "elastic"}),
    "elastic-server": Case({"consistency": "elastic", "exchange": "server"}),
    "noloco": Case({"consistency": NOLOCO | {"period": 1, "momentum": 0.1, "lr": 0.9, "gamma": 1.0}}),
    "hogwild": Case({"workers": 1, "consistency": {"name": "hogwild", "threads": 2}}, batch=8, lr=4e-3),
}


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
            result = _session(CASES[name], seed, folder).train(show=False)
            found.append(result.metrics["loss"][-1][1])
    return found


def _session(case: Case, seed: int, folder: str) -> Session:
    steps = SEQUENCES // case.batch
    settings: dict[str, Any] = {
        "network": {"name": "gpt", "layers": 2, "heads": 4, "width": 64, "dropout": 0.0},
        "data": {"source": _shakespeare.SOURCE, "batch_size": case.batch},
        "optimizer": {"name": "adamw", "lr": case.lr},
        "schedule": {"name": "cosine", "warmup": steps // 20},
        "train": {"steps": steps, "seed": seed, "device": "cpu"},
        "evaluate": {"every": f"{steps} steps"},
        "checkpoint": {"every": "never"},
        "strategy": {"workers": 4, **case.strategy},
        "run": {"folder": folder},
    }
    return Session(**settings)
