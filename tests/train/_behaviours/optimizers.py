"""Optimisers of other kinds, made at another time, and stepped in other ways."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from train._behaviours._learning import Loop, State, batches, learn, loss_of, sgd
from train._own_loops import CLASSES, network


def optimizer_made_later(worker: Any) -> State:
    model = worker.distribute(network())
    return learn(worker, model, torch.optim.AdamW(model.parameters(), lr=0.02))


def parameter_groups(worker: Any) -> State:
    model = network()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": [model[2].weight], "weight_decay": 0.1}]
    model, optimizer = worker.distribute(model, torch.optim.SGD(groups, lr=0.2))
    optimizer.add_param_group({"params": [model[2].bias], "lr": 0.05})
    return learn(worker, model, optimizer)


def sparse_with_sparse_adam(worker: Any) -> State:
    torch.manual_seed(1)
    model = nn.EmbeddingBag(30, CLASSES, sparse=True, mode="sum").double()
    model, optimizer = worker.distribute(model, torch.optim.SparseAdam(model.parameters(), lr=0.1))
    seen = []

    def loss(model: nn.Module, batch: Any) -> Tensor:
        seen.append(model.weight.grad is None or model.weight.grad.is_sparse)
        return functional.cross_entropy(model((batch[0].abs() * 10).long() % 30), batch[1])

    found = learn(worker, model, optimizer, loss)
    assert all(seen)
    assert model.weight.grad.is_sparse
    return found


def closures(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(
        model, torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    )
    losses = []
    for batch in batches(worker, 1):

        def closure(batch: Any = batch) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss.detach()

        losses.append(float(optimizer.step(closure)))
    return {"losses": torch.tensor(losses, dtype=torch.float64), **model.state_dict()}


def sharpness_aware(worker: Any) -> State:
    """Two backward passes a step, the second at other parameters, which are moved in place."""
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for batch in batches(worker):
        loss_of(model, batch).backward()
        moves = [0.05 * one.grad.clone() for one in model.parameters()]
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), moves)
        loss_of(model, batch).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()
    return dict(model.state_dict())


def steps_without_backward(worker: Any) -> State:
    """A worker that has nothing to learn from calls optimizer.step() alone."""
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for inputs, targets in batches(worker):
        optimizer.zero_grad()
        chosen = inputs[:, 0] > 1
        if chosen.any():
            (functional.cross_entropy(model(inputs[chosen]), targets[chosen], reduction="sum") / len(inputs)).backward()
        optimizer.step()
    return dict(model.state_dict())


EQUAL: list[Loop] = [
    optimizer_made_later,
    parameter_groups,
    sparse_with_sparse_adam,
    closures,
    steps_without_backward,
    sharpness_aware,
]
