"""Row `pipeline-bubble` of partitions.py: which share of a pipeline's step is without compute?

`partition: {name: pipeline, micro_batches: 8}` trains a transformer of 12 layers on four workers, whatever cores there
are, and each worker writes down what processor time each of its passes took (_timed_stages.py). From these times the
step is put together as it goes with a core for each worker: a pass begins when its worker is free and what it reads is
there; time on links counts for nothing, as there is no limit on them. The share is that of the median step; beside it
the formula, (p - 1) / (m + p - 1). `zero_bubble` is printed, too, and on as many cores as workers the measured waits.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _in_lab import HERE
from _report import Options, Row
from volary import Session
from volary.partition.pipelining.schedules import SCHEDULES, StagePass, timetable
from volary.run.database.reader import RunReader

STAGES, MICRO_BATCHES = 4, 8
WARM_UP = 3  # steps that count for nothing
IDEAL = (STAGES - 1) / (MICRO_BATCHES + STAGES - 1)  # if all stages take as long (GPipe)
WANTED = "at most 1.15"

Times = Mapping[StagePass, float]  # of a step, in seconds


@dataclass(frozen=True)
class Found:
    """Shares of a step. idle: without compute, a core for each worker; waited: as workers have waited."""

    idle: float
    waited: float
    busy_s: Sequence[float]  # of each worker, the median step's


def bubble(options: Options) -> Row:
    """The row."""
    steps = 8 if options.quick else 40
    one, zero = (_found(schedule, steps) for schedule in ("1f1b", "zero_bubble"))
    each = ", ".join(f"{seconds:.3f}" for seconds in one.busy_s)
    print(f"  pipeline-bubble: {STAGES} stages, {each} processor seconds a step; with zero_bubble {zero.idle:.1%}")
    cores = len(os.sched_getaffinity(0))
    print(f"  workers waited {one.waited:.1%} and {zero.waited:.1%} of their steps on {cores} cores")
    return Row("pipeline-bubble", one.idle, "of a step", "formula", IDEAL, one.idle / IDEAL, WANTED, "lower")


def _found(schedule: str, steps: int) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(
            network={"name": f"{HERE}/_timed_stages.py:gpt", "notes": folder},
            data={
                "source": {"name": "synthetic", "kind": "tokens", "shape": (128,), "classes": 65, "samples": 512},
                "batch_size": 2 * MICRO_BATCHES,
            },
            train={"steps": steps + WARM_UP},
            evaluate={"every": "never"},
            checkpoint={"every": "never"},
            strategy={
                "workers": STAGES,
                "partition": {"name": "pipeline", "micro_batches": MICRO_BATCHES, "schedule": schedule},
            },
            run={"folder": folder},
        )
        result = session.train(show=False)
        taken = [_steps(Path(folder, f"{rank}.jsonl")) for rank in range(STAGES)]
        with RunReader(result.directory) as reader:
            rows = list(reader.steps(after=WARM_UP))
    waits = [
        sum(row.exchange_s for row in rows if row.step == step) / sum(row.step_s for row in rows if row.step == step)
        for step in {row.step for row in rows}
    ]
    idle = [_idle(schedule, dict(pair for own in one for pair in own.items())) for one in zip(*taken, strict=True)]
    busy_s = [statistics.median(sum(step.values()) for step in own[WARM_UP:]) for own in taken]
    return Found(statistics.median(idle[WARM_UP:]), statistics.median(waits), busy_s)


def _steps(file: Path) -> Sequence[Times]:
    """A worker's passes and what they took, by step: each has every pass once."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    found: list[dict[StagePass, float]] = []
    for work, stage, micro_batch, seconds in lines:
        one = StagePass(work, stage, micro_batch)
        if not found or one in found[-1]:
            found.append({})
        found[-1][one] = seconds
    return found


def _idle(schedule: str, times: Times) -> float:
    """The share of all workers' time without compute, from the first pass's beginning to the last one's end."""
    waiting = [list(actions) for actions in timetable(SCHEDULES[schedule], STAGES, MICRO_BATCHES).actions]
    free_at, done = [0.0] * STAGES, dict[StagePass, float]()
    while any(waiting):
        for rank, actions in enumerate(waiting):
            while actions and all(one in done for one in _needs(actions[0])):
                action = actions.pop(0)
                begins = max([free_at[rank], *(done[one] for one in _needs(action))])
                free_at[rank] = done[action] = begins + times[action]
    return 1 - sum(times.values()) / (STAGES * max(free_at))


def _needs(action: StagePass) -> list[StagePass]:
    """The passes of other workers that must have been done before; its own are in order."""
    if action.work == "forward":
        return [StagePass("forward", action.stage - 1, action.micro_batch)] if action.stage else []
    behind = action.stage < STAGES - 1 and action.work != "weights"
    return [StagePass(action.work, action.stage + 1, action.micro_batch)] if behind else []
