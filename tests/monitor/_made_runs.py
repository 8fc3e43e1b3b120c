"""Runs written as a driver writes them, without training."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from volary.run.checkpoints import SHARED, Checkpoints
from volary.run.database.journal import Journal, StepRow
from volary.run.directory import RunDirectory
from volary.session import Session

STEP_S = 0.1
RAN_S = 14.0  # each run, whenever it is read


def session_yaml() -> str:
    return Session(
        network="lenet",
        data={"source": "digits", "batch_size": 64},
        optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9},
        strategy={"workers": 2},
    ).to_yaml()


def new_run(name: str = "lenet-digits-1") -> RunDirectory:
    return RunDirectory.create(Path("runs"), name, "", session_yaml())


@contextmanager
def journal(directory: RunDirectory) -> Iterator[Journal]:
    opened = Journal(directory.database)
    try:
        yield opened
    finally:
        opened.close()


def rows(first: int, last: int, workers: int = 2, slow_s: float = 0.0, **changed: Any) -> list[StepRow]:
    """Steps of 100 ms each; the last rank needs `slow_s` more of its own, and the others wait for it."""
    return [row(step, rank, slow_s if rank == workers - 1 else 0.0, slow_s, **changed)
            for step in range(first, last + 1) for rank in range(workers)]  # fmt: skip


def row(step: int, rank: int, own_s: float, slowest_s: float, **changed: Any) -> StepRow:
    values = {
        "step": step,
        "rank": rank,
        "ended_at": 1000.0 + step * STEP_S,
        "epoch": step / 23,
        "samples": 32,
        "loss": 2.0 / step,
        "lr": 0.05,
        "step_s": STEP_S + slowest_s,
        "data_s": 0.003,
        "forward_s": 0.030 + own_s,
        "backward_s": 0.045,
        "exchange_s": 0.012 + slowest_s - own_s,
        "optimizer_s": 0.006,
        "sent_bytes": 1000,
        "received_bytes": 1000,
    }
    return StepRow(**(values | changed))


def started(run: Journal, steps: int = 230, workers: int = 2) -> None:
    run.note(state="running", started_at=time.time() - RAN_S, workers=workers, steps_planned=steps, epochs_planned=10.0)
    run.note(metric="accuracy", higher_is_better=True)
    run.event("started")


def evaluated(run: Journal, step: int, accuracy: float, loss: float = 0.1) -> None:
    run.metrics(step, {"accuracy": accuracy, "loss": loss})
    run.event("evaluated", 0, step, accuracy=accuracy, loss=loss)
    run.note(best=accuracy, best_step=step)


def finished(run: Journal, step: int, state: str = "finished", message: str = "") -> None:
    now = time.time()
    run.note(state=state, started_at=now - RAN_S, ended_at=now, steps_done=step, message=message)
    run.event(state, step=step)


def whole_run(name: str = "lenet-digits-1", steps: int = 46) -> RunDirectory:
    """A finished run of two evaluations and two checkpoints."""
    directory = new_run(name)
    with journal(directory) as run:
        started(run, steps)
        run.steps(rows(1, steps))
        for step, accuracy in ((steps // 2, 0.9132), (steps, 0.9733)):
            evaluated(run, step, accuracy)
            checkpoint(directory, step, accuracy)
            run.event("checkpoint", 0, step, path=f"step-{step:08d}", seconds=0.01)
        finished(run, steps)
    return directory


def weights(values: bytes) -> bytes:
    """A safetensors file of one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(values)], "data_offsets": [0, len(values)]}}).encode()
    return len(header).to_bytes(8, "little") + header + values


def checkpoint(directory: RunDirectory, step: int, metric: float | None, content: bytes = b"weights") -> Path:
    checkpoints = Checkpoints(directory.checkpoints)
    checkpoints.begin(step)
    contents = {"model.safetensors": weights(content + b" of %d" % step), SHARED: weights(b"what workers hold alike")}
    files = {name: checkpoints.write(step, name, written) for name, written in contents.items()}
    return checkpoints.commit(step, 2, files, metric)
