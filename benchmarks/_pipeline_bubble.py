"""How long workers of a pipeline wait: their steps, as a run records them."""

from __future__ import annotations

import os
import statistics
import tempfile

from volary import Session
from volary.run.database.reader import RunReader

MICRO_BATCHES = 8
GPT = {"name": "gpt", "layers": 12, "heads": 8, "width": 256, "dropout": 0.0, "tied": False}
WARM_UP = 3  # steps that count for nothing


def stages_here() -> int:
    """Four, or as many as there are cores for: stages that share one wait for it, too."""
    return max(2, min(4, len(os.sched_getaffinity(0))))


def ideal(stages: int) -> float:
    """The share of the time in which a worker has nothing to compute, if all stages take as long (GPipe)."""
    return (stages - 1) / (MICRO_BATCHES + stages - 1)


def waited(schedule: str, steps: int) -> float:
    """The same of a run: waits of all workers over the time of their steps, the median step's."""
    stages = stages_here()
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            network=GPT,
            data={
                "source": {"name": "synthetic", "kind": "tokens", "shape": (128,), "classes": 65, "samples": 512},
                "batch_size": 2 * MICRO_BATCHES,
            },
            train={"steps": steps + WARM_UP},
            evaluate={"every": "never"},
            checkpoint={"every": "never"},
            strategy={
                "workers": stages,
                "partition": {"name": "pipeline", "micro_batches": MICRO_BATCHES, "schedule": schedule},
            },
            run={"folder": folder},
        )
        result = session.train(show=False)
        with RunReader(result.directory) as reader:
            rows = list(reader.steps(after=WARM_UP))
    shares = [
        sum(row.exchange_s for row in rows if row.step == step) / sum(row.step_s for row in rows if row.step == step)
        for step in {row.step for row in rows}
    ]
    return statistics.median(shares)
