"""Tasks of Spark compute a step, without Spark: shares of a batch become slices, and slices sums."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load, save
from torch import nn
from torch.nn.functional import cross_entropy

from volary.driver.tasks.checks import check
from volary.errors import BadInput, SettingError
from volary.executors.stage import GATEWAY, REMOTE
from volary.network import build_loss
from volary.network.losses.cross_entropy import CrossEntropy
from volary.partition.jobs.job import GradientJobs
from volary.partition.jobs.share import BUFFER, LOSS, USED, SharedNetwork, TaskShare
from volary.partition.spark import SparkJobs
from volary.session.script import Script
from volary.session.spec import Session

TASKS = 3


class Tied(nn.Module):
    """A weight that two layers share, batch norm, and a layer that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.unused = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(2, 2)
        self.second.weight, self.norm = self.first.weight, nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.norm(torch.tanh(self.first(x))))


def network(module: nn.Module, trained: list[str], slices: int) -> SharedNetwork:
    """As the worker makes it of a module, after a journey."""
    jobs = GradientJobs(module, TASKS)
    modes = [part.training for part in module.modules()]
    loss = build_loss(CrossEntropy())
    made = SharedNetwork(jobs._skeleton, loss, jobs._first, trained, "float32", modes, slices, 1)
    return pickle.load(io.BytesIO(pickle.dumps(made)))


@pytest.mark.parametrize("slices", [1, TASKS])
def test_sums_of_slices_are_the_gradients_of_one_process_and_the_first_task_s_buffers_are_kept(slices):
    torch.manual_seed(0)
    module = Tied()
    state = {name: one.detach().clone() for name, one in (*module.named_parameters(), *module.named_buffers())}
    inputs, targets = torch.randn(9, 4), torch.randint(4, (9,))
    alone = copy.deepcopy(module)
    parts = [slice(0, 4), slice(4, 7), slice(7, 9)]  # each normalises by its own samples, as workers do
    for number, part in enumerate(parts):
        (cross_entropy(alone(inputs[part]), targets[part]) * (part.stop - part.start) / 9).backward()
        if number == 0:
            buffers = {name: one.clone() for name, one in alone.named_buffers()}
    trained = [name for name, _ in module.named_parameters()]
    there, found = network(module, trained, slices), []
    for task, part in enumerate(parts):
        samples = save({"inputs": inputs[part].clone(), "targets": targets[part].clone()})
        found += there.learnt(save(state), TaskShare(task, (part.stop - part.start) / 9, samples))
    summed = list(there.summed(reversed(found)))
    assert list(there.summed(summed)) == summed
    assert [one.number for one in summed] == list(range(slices))
    values = torch.from_numpy(np.concatenate([np.frombuffer(one.values, np.float32) for one in summed]))
    abouts = [load(about) for one in summed for about in one.abouts]
    used = abouts[0][USED].tolist()
    assert len(abouts) == TASKS and all(about[LOSS] > 0 for about in abouts)
    for name, piece, is_used in zip(
        trained, values.split([state[name].numel() for name in trained]), used, strict=True
    ):
        expected = alone.get_parameter(name).grad
        assert is_used == (expected is not None)
        torch.testing.assert_close(piece, torch.zeros_like(piece) if expected is None else expected.reshape(-1))
    for name, expected in buffers.items():
        torch.testing.assert_close(abouts[0][BUFFER + name], expected)
    assert list(there.summed([])) == []


@pytest.mark.parametrize("train", [{"precision": "bf16"}, {"compile": True}])
def test_what_tasks_would_not_do_is_refused(train):
    with pytest.raises(SettingError, match=r"strategy\.partition is spark: short tasks of Spark compute gradients"):
        Session(network="softmax", data={"source": "digits"}, strategy={"partition": "spark"}, train=train)


def test_no_tasks_and_a_loop_of_one_s_own_are_refused():
    with pytest.raises(SettingError, match="tasks is 0; accepted: 1 or more"):
        SparkJobs(tasks=0)
    with pytest.raises(SettingError, match="a loop of your own computes them itself; accepted: partition=data"):
        Script(program="train.py", strategy={"partition": "spark"})


def test_a_run_that_no_program_with_an_application_starts_is_refused_before_it_starts(monkeypatch):
    for name in (GATEWAY, REMOTE):
        monkeypatch.delenv(name, raising=False)
    task = Session(network="softmax", data={"source": "digits"}, strategy={"partition": "spark"})
    with pytest.raises(BadInput, match=r"strategy.partition: is spark, .*; accepted: volary.spark.train\(spark, "):
        check(task)
    monkeypatch.setenv(REMOTE, "sc://alpha")
    check(task)
