"""A worker is lost in the midst of a batch: others compute its portions, and the run is the same bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from faults._running import Run, events, state, steps
from volary.run.checkpoints import Checkpoints
from volary.train.state.weights import SavedWeights

SESSION = """\
network: {name: "net.py:Net"}
data: {source: {name: synthetic, shape: [16], classes: 4, samples: 256, kind: blobs}, batch_size: 256}
optimizer: {name: lbfgs, lr: 0.5, history_size: 4, line_search: strong_wolfe}
train: {steps: 14}
evaluate: {every: never}
checkpoint: {every: never}
strategy:
  workers: 2
  consistency: {name: portions, count: 8}
  exchange: {name: server, servers: 2}
run: {name: it}
"""
NETWORK = """\
import time

from torch import nn


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, classes))

    def forward(self, inputs):
        time.sleep(0.05)
        return self.layers(inputs)
"""
NAMES = [f"layers.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")]


def trained(run: Run) -> dict[str, Tensor]:
    assert run.ended().status == 0, run.text()
    assert state(run.directory) == "finished"
    checkpoints = Checkpoints(run.directory.checkpoints)
    (step,) = checkpoints.steps()[-1:]
    assert step == 14
    saved = SavedWeights(checkpoints.path(step), checkpoints.manifest(step))
    return {name: saved.whole(name).clone() for name in NAMES}


@pytest.mark.slow  # three processes, twice
def test_without_a_worker_that_is_killed_in_an_iteration_the_iterates_have_the_same_bits(launch, tmp_path, monkeypatch):
    found = []
    for name in ("whole", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        Path("net.py").write_text(NETWORK)
        Path("session.yaml").write_text(SESSION)
        run = launch("train", "session.yaml")
        if name == "killed":
            run.wait_for_step(1)
            run.wait_until(lambda: steps(run) >= 4)  # noqa: B023  # it is waited for here
            run.kill(rank=1)
        found.append(trained(run))
        assert [event.rank for event in events(run.directory, "lost")] == ([1] if name == "killed" else [])
    whole, killed = found
    for name, values in whole.items():
        assert torch.equal(values, killed[name]), name
