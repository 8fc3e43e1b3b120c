"""Models that are copied, saved whole, compiled or scripted."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from train._behaviours._learning import Loop, State, batches, learn, loss_of, sgd
from train._own_loops import network, points


def script(model: nn.Module) -> Any:
    with warnings.catch_warnings(action="ignore"):  # torch would have us use something else
        return torch.jit.script(model)


def copied(worker: Any) -> State:
    model = worker.distribute(network())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = sgd(model)
    for batch in batches(worker):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        average.update_parameters(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    others = [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)]
    scripted = script(copy.deepcopy(model))
    batch = points().tensors
    for other in others:
        loss_of(other, batch).backward()  # by itself, on whichever rank: nobody is asked
        assert not any(part._forward_pre_hooks or part._forward_hooks for part in other.modules())
    assert torch.equal(scripted(batch[0]), model(batch[0]))
    return {"model": model.state_dict(), "average": average.state_dict(), "copy": others[0].state_dict()}


def compiled_before_and_after(worker: Any) -> State:
    model = torch.compile(network(), backend="aot_eager")
    model, optimizer = worker.distribute(model, sgd(model))
    found = learn(worker, model, optimizer, epochs=1)
    after = worker.distribute(network())
    return {"before": found, "after": learn(worker, torch.compile(after, backend="aot_eager"), sgd(after), epochs=1)}


def compiled_function(worker: Any) -> State:
    """A function of the loop is compiled, which calls a part of the network, and reads parameters of another."""
    model = network()

    def scores(inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(model[1](model[0](inputs)), model[2].weight, model[2].bias)

    quick = torch.compile(scores, backend="eager")

    def loss(_model: nn.Module, batch: Any) -> torch.Tensor:
        return functional.cross_entropy(quick(batch[0]), batch[1])

    optimizer = sgd(model)
    worker.distribute(model, optimizer, early_update=True)
    return learn(worker, model, optimizer, loss)


def scripted(worker: Any) -> State:
    model = script(network())
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


COMPILED: list[Loop] = [compiled_before_and_after, compiled_function]
EQUAL: list[Loop] = [
    copied,
    scripted,
]
