"""Several models, or several optimisers, that are distributed in one call or in more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from train._behaviours._learning import Loop, State, batches, learn, loss_of, sgd
from train._own_loops import CLASSES, FEATURES, network


def adversarial(worker: Any, distribute: Callable[..., Any], momentum: float = 0.9) -> State:
    """A generator and a discriminator that learn in turn, each with its optimiser; gradients of one go through both."""
    torch.manual_seed(1)
    generator = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, FEATURES)).double()
    judge = nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    of_generator, of_judge = (sgd(one, lr=0.05, momentum=momentum) for one in (generator, judge))
    distribute(worker, generator, judge, of_generator, of_judge)
    for real, _ in batches(worker):
        fake = generator(real[:, :2])
        of_judge.zero_grad()
        (functional.softplus(-judge(real)) + functional.softplus(judge(fake.detach()))).mean().backward()
        of_judge.step()
        of_generator.zero_grad()
        functional.softplus(-judge(fake)).mean().backward()
        of_generator.step()
    return {"generator": generator.state_dict(), "judge": judge.state_dict()}


def gan_in_two_calls(worker: Any, momentum: float = 0.9) -> State:
    def distribute(worker: Any, generator: Any, judge: Any, of_generator: Any, of_judge: Any) -> None:
        assert worker.distribute(generator, of_generator) == (generator, of_generator)
        assert worker.distribute(judge, of_judge) == (judge, of_judge)

    return adversarial(worker, distribute, momentum)


def gan_in_lists(worker: Any) -> State:
    def distribute(worker: Any, *parts: Any) -> None:
        assert worker.distribute(list(parts[:2]), list(parts[2:])) == (list(parts[:2]), list(parts[2:]))

    return adversarial(worker, distribute)


def one_optimizer_of_two_models(worker: Any) -> State:
    first, second = nn.Linear(FEATURES, 8).double(), nn.Linear(8, CLASSES).double()
    first.weight.data.fill_(0.1)
    second.weight.data.fill_(-0.1)
    first, second, optimizer = worker.distribute(first, second, sgd(first, second))
    chain = nn.Sequential(first, nn.Tanh(), second)
    return learn(worker, chain, optimizer)


def two_optimizers_of_one_model(worker: Any) -> State:
    """worker.distribute is given one of them."""
    model = network()
    first, second = sgd(model[0]), torch.optim.Adam(model[2].parameters(), lr=0.01)
    worker.distribute(model, first)
    for batch in batches(worker):
        loss_of(model, batch).backward()
        for one in (first, second):
            one.step()
            one.zero_grad()
    return dict(model.state_dict())


EQUAL: list[Loop] = [
    gan_in_two_calls,
    gan_in_lists,
    one_optimizer_of_two_models,
    two_optimizers_of_one_model,
]
