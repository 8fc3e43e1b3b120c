"""Each feature with each way to keep replicas one model: killed at each of its boundaries, and resumed.

The features and ways are those of tests/train/test_feature_matrix.py, where runs are stopped; here processes of real
runs are killed between two checkpoints: a worker, the driver and all workers at once, the driver alone.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from faults._held import HELD, hold_after
from faults._running import Run, outcome, state
from train._user_networks import Dropping
from train.test_feature_matrix import FEATURES, FILE, REFUSED, STEPS, STRATEGIES, made
from volary.run.checkpoints import ROSTER, Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory

EVERY = "checkpoint.every=5 steps"
CASES = [
    pytest.param(strategy, name, id=f"{strategy}: {name}")
    for strategy in STRATEGIES
    for name in FEATURES
    if name not in REFUSED.get(strategy, set())
]


def kill_a_worker(run: Run) -> None:
    run.kill(rank=1)


def kill_all(run: Run) -> None:
    with RunReader(run.directory) as reader:
        info = reader.info()
    for pid in [*json.loads(info["pids"]), *json.loads(info.get("server_pids", "[]"))]:
        os.kill(pid, signal.SIGKILL)


def kill_the_driver(run: Run) -> None:
    run.process.kill()


def beyond_steps(directory: RunDirectory) -> int:
    """How far workers that go each at its own pace number their contributions beyond the steps, once resumed."""
    checkpoints = Checkpoints(directory.checkpoints)
    for step in checkpoints.steps()[-1:]:
        return int(json.loads((checkpoints.path(step) / ROSTER).read_bytes())["closings"]) - step
    return 0


@pytest.mark.slow  # trains three times and more
@pytest.mark.parametrize(("strategy", "name"), CASES)
def test_a_run_that_is_killed_at_each_boundary_of_a_feature_and_resumed_is_the_whole_one(
    strategy: str, name: str, launch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(FEATURES[name], strategy)
    elastic = one.strategy.consistency.elastic  # the others would go on without a worker
    torch.manual_seed(7)
    torch.save(Dropping().state_dict(), FILE)
    Path("session.yaml").write_text(one.to_yaml())
    whole = launch("train", "session.yaml", EVERY, "run.name=whole", name="whole")
    assert whole.ended().status == 0, whole.text()
    held = Path("held").absolute()
    held.mkdir()
    (held / "sitecustomize.py").write_text(HELD.format(file=str(held / "step")))
    monkeypatch.setenv("PYTHONPATH", str(held))
    kills = itertools.cycle([kill_the_driver if elastic else kill_a_worker, kill_all, kill_the_driver])
    command = ["train", "session.yaml", EVERY, "run.name=it"]
    for stop, kill in zip(FEATURES[name].stops, kills, strict=False):
        number = stop + beyond_steps(RunDirectory("runs/it")) if elastic else stop
        hold_after(number, held / "step")
        run = launch(*command)
        run.wait_for_step(number)
        kill(run)
        assert run.ended(gone_within_s=15).status != 0, run.text()
        command = ["resume", "it"]
    hold_after(10**6, held / "step")
    run = launch(*command)
    assert run.ended().status == 0, run.text()
    assert (state(run.directory), Checkpoints(run.directory.checkpoints).steps()[-1]) == ("finished", STEPS)
    if not elastic:
        assert outcome(run.directory).continues(outcome(whole.directory))
