"""Gradients that are made, looked at or changed otherwise than by one backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from train._behaviours._learning import Loop, State, batches, learn, loss_of, sgd
from train._own_loops import network
from volary.network.blocks.communication import Gather


def doubled(parameter: Tensor) -> None:
    parameter.grad *= 2


def own_hooks(worker: Any) -> State:
    """Hooks see the gradients of this worker's share, as they did before; and may change them."""
    model, seen = network(), []
    model[0].weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad is not None))
    model, optimizer = worker.distribute(model, sgd(model))
    handle = model[2].weight.register_post_accumulate_grad_hook(lambda one: seen.append(one.grad is not None))
    model[2].bias.register_hook(lambda gradient: gradient * 0.5)
    model[0].bias.register_post_accumulate_grad_hook(doubled)
    learn(worker, model, optimizer)
    assert seen == [True] * 30
    handle.remove()
    learn(worker, model, optimizer, epochs=1)
    assert len(seen) == 35
    return dict(model.state_dict())


def double_backward(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model, lr=0.01))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs = batch[0].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(model(inputs).square().sum(), inputs, create_graph=True)
        return loss_of(model, batch) + gradient.square().sum(1).mean()

    return learn(worker, model, optimizer, loss)


def by_hand(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for batch in batches(worker):
        optimizer.zero_grad()
        for one, gradient in zip(
            model.parameters(), torch.autograd.grad(loss_of(model, batch), list(model.parameters())), strict=True
        ):
            one.grad = gradient
        optimizer.step()
    return dict(model.state_dict())


def checkpointed(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        inputs = batch[0].clone().requires_grad_()
        return functional.cross_entropy(checkpoint(model, inputs, use_reentrant=True), batch[1])

    return learn(worker, model, optimizer, loss)


def own_collectives(worker: Any) -> State:
    """Calls of the user's own to torch.distributed, between the steps and within."""
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    for batch in batches(worker, 1):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if worker.world_size > 1:
            together = torch.ones(3)
            torch.distributed.all_reduce(together)
            assert together.tolist() == [worker.world_size] * 3
        optimizer.step()
    return dict(model.state_dict())


def samples_that_meet(worker: Any) -> State:
    """A contrastive loss, of all samples of the batch with each other: one worker has it, of what all have."""
    model = network()
    model, optimizer = worker.distribute(model, sgd(model), loss="sum")
    together = Gather(worker.channel(), root=0)

    def loss(model: nn.Module, batch: Any) -> Tensor:
        views = together(torch.stack([model(batch[0]), model(batch[0] + 0.1)], dim=1))
        if not worker.is_first:
            return views
        one, other = functional.normalize(views, dim=2).unbind(1)
        return functional.cross_entropy(one @ other.T / 0.2, torch.arange(len(one)))

    return learn(worker, model, optimizer, loss)


EQUAL: list[Loop] = [
    own_hooks,
    own_collectives,
    samples_that_meet,
    double_backward,
    by_hand,
    checkpointed,
]
