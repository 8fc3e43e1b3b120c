"""Executors that are lost while rows of a frame train, out of band and in band: real Spark, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

AT_MOST_S = 1400  # of four runs on a busy machine
SESSION = """\
network: net.py:Net
data: {source: digits, batch_size: 256}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
train: {steps: 12}
evaluate: {every: never}
checkpoint: {every: 2 steps}
strategy: {workers: 2, startup_timeout_s: 600}
"""
NET = """\
import os
from pathlib import Path

import psutil
from torch import nn

AFTER = 14  # passes of both workers, or tasks


class Net(nn.Module):
    \"\"\"Kills the executor that it is on, if a file says so, when it has learned from some batches.\"\"\"

    def __init__(self, input_shape, classes):
        super().__init__()
        self.layer, self.folder = nn.Linear(784, classes), Path(".").absolute()

    def forward(self, x):
        if self.training and (self.folder / "kill").exists():
            with (self.folder / "passes").open("a") as file:
                file.write(".")
            if (self.folder / "passes").stat().st_size > AFTER:
                try:
                    (self.folder / "kill").rename(self.folder / "killed")  # one of them does
                except FileNotFoundError:
                    return self.layer(x.flatten(1))
                parents = psutil.Process().parents()
                next(one for one in parents if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())).kill()
        return self.layer(x.flatten(1))
"""
PROGRAM = """\
import json
from pathlib import Path

import volary.spark
from _program import apart, application, digits, weights
from volary.run.database.reader import RunReader


def trained(spark):
    df, shape = digits(spark)

    def train(name, *overrides, kill=False):
        Path("passes").unlink(missing_ok=True)
        if kill:
            Path("kill").touch()
        return volary.spark.train(
            spark, "session.yaml", [f"run.name={name}", *overrides], show=False,
            data=df, inputs="image", targets="label", shape=shape,
        )

    alone = weights(train("alone"))
    said = {"servers": apart(alone, weights(train("servers", "strategy.exchange=server")))}
    for name, overrides in (
        ("out of band", ["engine=spark", "engine.max_restarts=1"]),
        ("in band", ["strategy.workers=1", "strategy.partition={name: spark, tasks: 2}"]),
    ):
        found = train(name.replace(" ", "-"), *overrides, kill=True)
        with RunReader(found.directory) as reader:
            attempts = len({event.attempt for event in reader.events()})
        said[name] = [Path("killed").exists(), attempts, apart(alone, weights(found))]
        Path("killed").unlink(missing_ok=True)
    return said


if __name__ == "__main__":
    with application("local-cluster[2,1,1024]") as spark:
        said = trained(spark)
    print(json.dumps(said))
"""


@pytest.mark.timeout(AT_MOST_S + 20)
@pytest.mark.slow  # starts a cluster of Spark's, and four runs in it
def test_executors_killed_while_a_frame_trains_cost_a_restart_or_some_tasks_and_no_row_and_servers_take_frames_too(
    said_by,
):
    Path("session.yaml").write_text(SESSION)
    Path("net.py").write_text(NET)
    said = said_by(PROGRAM, at_most_s=AT_MOST_S)
    assert said["servers"] < 1e-5
    killed, attempts, apart = said["out of band"]
    assert (killed, attempts, apart) == (True, 2, 0.0)
    killed, attempts, apart = said["in band"]
    assert (killed, attempts) == (True, 1)
    assert apart < 1e-5
