"""Jobs of short tasks learn from batches: real Spark, in a process of its own, with a task that is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

TASKS = 2
AT_MOST_S = 1000  # of four runs on a busy machine
SESSION = f"""\
network: net.py:Net
data: {{batch_size: 256, source: digits}}
optimizer: {{name: sgd, lr: 0.05, momentum: 0.9}}
train: {{steps: 4}}
strategy: {{partition: {{name: spark, tasks: {TASKS}}}, startup_timeout_s: 600}}
"""
NET = """\
import os
import signal
from pathlib import Path

from torch import nn


class Net(nn.Module):
    \"\"\"Writes down which task runs it, and kills the fourth one.\"\"\"

    def __init__(self, input_shape, classes):
        super().__init__()
        self.layer, self.folder = nn.Linear(784, classes), Path(".").absolute()

    def forward(self, x):
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is not None:
            seen = len(list(self.folder.glob("seen-*")))
            (self.folder / f"seen-{task.stageId()}-{task.partitionId()}-{task.attemptNumber()}").touch()
            if seen == 3 and not task.attemptNumber():
                os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x.flatten(1))
"""
PROGRAM = """\
import json
from pathlib import Path

import volary
import volary.spark
from _program import apart, application, digits, weights

if __name__ == "__main__":
    with application("local-cluster[2,1,1024]") as spark:
        alone = volary.Session.read("session.yaml", ["strategy.partition=data", "run.name=alone"]).train(show=False)
        files = volary.spark.train(spark, "session.yaml", ["run.name=files"], show=False)
        said = {"seen": sorted(one.name for one in Path().glob("seen-*"))}
        said["accuracy"] = [result.metrics["accuracy"][-1][1] for result in (alone, files)]
        df, shape = digits(spark)
        frame = volary.spark.train(
            spark, "session.yaml", ["evaluate.every=never", "run.name=frame"], show=False,
            data=df, inputs="image", targets="label", shape=shape,
        )
        slices = volary.spark.train(
            spark, "session.yaml", ["strategy.partition.tasks=6", "run.name=slices"], show=False
        )  # more than the worker adds up itself
        said["apart"] = [apart(weights(alone), weights(one)) for one in (files, frame, slices)]
    print(json.dumps(said))
"""


@pytest.mark.timeout(AT_MOST_S + 20)
@pytest.mark.slow  # starts a cluster of Spark's, and four runs
def test_jobs_of_short_tasks_train_as_one_process_to_rounding_and_a_killed_task_alone_runs_again(said_by):
    Path("session.yaml").write_text(SESSION)
    Path("net.py").write_text(NET)
    said = said_by(PROGRAM, at_most_s=AT_MOST_S)
    again = [name for name in said["seen"] if not name.endswith("-0")]
    assert (len(said["seen"]), len(again)) == (4 * TASKS + 1, 1)
    assert again[0].removesuffix("-1") + "-0" in said["seen"]
    assert said["accuracy"][0] == pytest.approx(said["accuracy"][1], abs=0.01)
    assert max(said["apart"]) < 1e-5


FRAMES_ALONE = """\
import copy
import json

import torch
from safetensors.torch import save
from torch import nn

from _program import application
from volary.network import build_loss
from volary.network.losses.cross_entropy import CrossEntropy
from volary.partition.jobs.running import _by_context, _by_frames
from volary.partition.jobs.share import SharedNetwork, TaskShare


def same(spark, slices):
    torch.manual_seed(1)
    module, tasks = nn.Linear(5, 3), 6
    names = [name for name, _ in module.named_parameters()]
    skeleton, first = copy.deepcopy(module).to("meta"), {name: name for name in names}
    network = SharedNetwork(skeleton, build_loss(CrossEntropy()), first, names, "float32", [True], slices, 1)
    state = save({name: one.detach() for name, one in module.named_parameters()})
    samples = [save({"inputs": torch.randn(4, 5), "targets": torch.arange(4) % 3}) for _ in range(tasks)]
    shares = [TaskShare(task, 1 / tasks, one) for task, one in enumerate(samples)]
    one, other = (list(network.summed(run(spark, network, state, shares))) for run in (_by_context, _by_frames))
    return len(one), one == other


if __name__ == "__main__":
    with application("local[2]") as spark:
        said = [same(spark, slices) for slices in (1, 6)]
    print(json.dumps(said))
"""


@pytest.mark.slow  # starts Spark
def test_frames_alone_as_over_connect_come_to_the_same_sums_bit_for_bit(said_by):
    assert said_by(FRAMES_ALONE) == [[1, True], [6, True]]
