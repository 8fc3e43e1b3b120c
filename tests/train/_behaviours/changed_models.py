"""Models that are changed after they were distributed: frozen, replaced, assigned, given again."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from train._behaviours._learning import Loop, State, learn, sgd
from train._own_loops import CLASSES, network


def frozen_and_thawed(worker: Any) -> State:
    model = network()
    model[0].requires_grad_(requires_grad=False)
    model, optimizer = worker.distribute(model, sgd(model))
    learn(worker, model, optimizer, epochs=1)
    model[0].requires_grad_()
    model[2].requires_grad_(requires_grad=False)
    return learn(worker, model, optimizer)


def head_replaced(worker: Any) -> State:
    model = worker.distribute(network())
    learn(worker, model, sgd(model), epochs=1)
    torch.manual_seed(7 + worker.rank)  # rank 0's values count
    model[2] = nn.Linear(8, CLASSES).double()
    return learn(worker, model, sgd(model))


def assigned(worker: Any) -> State:
    model = worker.distribute(network())
    learn(worker, model, sgd(model), epochs=1)
    model.load_state_dict({name: value.clone() * 0.5 for name, value in model.state_dict().items()}, assign=True)
    model.requires_grad_()
    return learn(worker, model, sgd(model))


def given_again(worker: Any) -> State:
    model = worker.distribute(network())
    model[2] = nn.Linear(8, CLASSES, bias=False).double()
    model[2].weight.data.fill_(0.1 * (1 + worker.rank))
    return learn(worker, worker.distribute(model), sgd(model))


def another_type_later(worker: Any) -> State:
    model = worker.distribute(network().float())
    model.double()
    return learn(worker, model, sgd(model))


EQUAL: list[Loop] = [
    frozen_and_thawed,
    head_replaced,
    assigned,
    given_again,
    another_type_later,
]
