"""Loops of a user's own whose workers hold parts of a model: what one raises ends all at once, and is named."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from faults._running import VOLARY, running

SCRIPT = """\
import sys
import time
import torch
import volary
from torch import nn
from torch.utils.data import TensorDataset

WHAT = {what!r}  # fails on the second worker
CALLS = 0


class Step(nn.Module):
    def forward(self, x):
        return fail("forward", x)


def fail(what, x):
    global CALLS
    CALLS += what == WHAT
    if CALLS > 60 and what == WHAT and worker.rank == 1:
        raise ValueError("boom in user code")
    return x


class Rule(torch.optim.SGD):
    elementwise = True

    def step(self, closure=None):
        fail("step", None)
        return super().step(closure)


def loss(outputs, targets):
    return nn.functional.cross_entropy(fail("loss", outputs), targets)


def train(given):
    global worker
    worker = given
    torch.manual_seed(1)
    layers = nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), Step(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    model = nn.Sequential(*layers)
    model, optimizer = worker.distribute(model, Rule(model.parameters(), lr=0.01))
    feed = worker.feed(TensorDataset(torch.randn(256, 16), torch.randint(4, (256,))), batch_size=32)
    for epoch in range(100_000):
        for inputs, targets in feed:
            optimizer.zero_grad()
            if WHAT == "inputs" and epoch == 2 and worker.rank == 1:
                inputs = inputs.tolist()
            worker.learn(inputs, targets, loss)
            optimizer.step()
            time.sleep(0.02)


if __name__ == "__main__":
    volary.launch(train, workers=2, name="it", strategy={strategy})
"""


@pytest.mark.slow  # tests/faults/test_raised.py has the report of an error
@pytest.mark.parametrize(
    ("partition", "what", "said"),
    [
        ("pipeline", "loss", "own.py:21 in fail: ValueError: boom in user code"),
        ("tensor", "inputs", "worker.learn was given a list and a tensor of shape (32,); accepted: tensors of inputs"),
        ("hybrid", "step", "own.py:21 in fail: ValueError: boom in user code"),
    ],
)
def test_what_one_worker_raises_ends_all_that_hold_the_model_with_it(partition, what, said):
    strategy = {"partition": partition}
    Path("own.py").write_text(SCRIPT.format(what=what, strategy=strategy))
    with running(sys.executable, "own.py") as run:
        ended = run.ended(at_most_s=60)  # far below the bound of a wait
    assert ended.status != 0
    assert said in ended.err
    assert "rank 1 (host " in ended.err


LOST: dict[str, tuple[dict[str, Any], int, int, str]] = {  # the strategy, who is lost, by which signal, what is said
    "tensor": ({"partition": "tensor"}, 1, signal.SIGKILL, "part 2 of 2 of cut layers"),
    "tensor, stopped": ({"partition": "tensor"}, 1, signal.SIGSTOP, "part 2 of 2 of cut layers"),
    "hybrid": ({"partition": "hybrid"}, 1, signal.SIGKILL, "part 2 of 2 of cut layers"),
    "hybrid, stopped": ({"partition": "hybrid"}, 1, signal.SIGSTOP, "part 2 of 2 of cut layers"),
    "pipeline": ({"partition": {"name": "pipeline", "micro_batches": 2}}, 1, signal.SIGKILL, "stage 2 of 2"),
    "pipeline, stopped": ({"partition": {"name": "pipeline", "micro_batches": 2}}, 0, signal.SIGSTOP, "stage 1 of 2"),
    "sharded": ({"partition": {"name": "sharded", "level": 2}}, 1, signal.SIGKILL, "share 2 of 2"),
    "sharded, stopped": ({"partition": "sharded"}, 0, signal.SIGSTOP, "share 1 of 2"),
    "mesh": (
        {"partition": {"name": "mesh", "axes": {"data": 2, "tensor": 2}}},
        3,
        signal.SIGKILL,
        "part 2 of 2 of cut layers of replica 2",
    ),
    "mesh, stopped": (
        {"partition": {"name": "mesh", "axes": {"data": 2, "pipeline": 2}}},
        2,
        signal.SIGSTOP,
        "stage 1 of 2 of replica 2",
    ),
}
QUICK = "pipeline"


@pytest.mark.parametrize("name", [QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in LOST if one != QUICK)])
def test_worker_that_is_lost_in_a_loop_of_ones_own_is_named_with_its_part(name):
    strategy, rank, how, part = LOST[name]
    shares = "sharded" in str(strategy)
    workers = 4 if name.startswith("mesh") else 2
    quiet = {"suspect_after_s": 1, "give_up_after_s": 2.5} if how == signal.SIGSTOP else {}
    text = SCRIPT.format(what="", strategy=strategy | quiet).replace("workers=2", f"workers={workers}")
    command: tuple[str, ...] = sys.executable, "own.py"
    if shares:  # which are updated as sums arrive
        text = (
            text.partition("if __name__")[0].replace("Rule(model", "torch.optim.SGD(model") + "train(volary.init())\n"
        )
        settings = {"workers": 2, **strategy, **quiet}
        given = [f"strategy.{name}={json.dumps(one)}" for name, one in settings.items()]
        command = *VOLARY, "launch", "early_update=true", "run.name=it", *given, "own.py"
    Path("own.py").write_text(text)
    with running(*command) as run:
        run.wait_for_step(15)
        run.kill(rank=rank, number=how)
        ended = run.ended(at_most_s=5 if how == signal.SIGKILL else 10)
    assert ended.status != 0
    happened = "was killed by SIGKILL" if how == signal.SIGKILL else r"has been silent for \d+ s.*"
    who = rf"rank {rank} \(host \S+, process \d+, {part}\)"
    assert re.search(rf"{who} {happened}; last step \d+, in ", ended.err), ended.err
