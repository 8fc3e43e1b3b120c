"""Models with what is not in every one: buffers, unused or shared parameters, other types, other ways to be called."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from train._behaviours._learning import Loop, State, learn, loss_of, sgd
from train._own_loops import CLASSES, FEATURES, network


def seeds_stay(worker: Any) -> State:
    torch.manual_seed(11)
    model = network()
    torch.manual_seed(12)
    worker.distribute(model, sgd(model))
    return {"drawn": torch.rand(3)}


def buffers(worker: Any) -> State:
    """Rank 0's, also of a buffer that the model assigns anew."""

    class Queue(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.register_buffer("newest", torch.zeros(1, dtype=torch.float64))

        def forward(self, inputs: Tensor) -> Tensor:
            self.newest = inputs[:1, 0].detach().clone()
            return self.inner(inputs)

    model = Queue()
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


def unused(worker: Any) -> State:
    """Layers that are never used, also under two names: no flag is needed."""
    never = nn.Linear(2, 2).double()
    model = nn.ModuleDict({"used": network(), "never": never, "nor by another name": never})
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer, lambda model, batch: loss_of(model["used"], batch))


def branches_by_samples(worker: Any) -> State:
    """A worker without a sample of a class leaves its branch out, as it does not know of others'; no flag is needed."""
    torch.manual_seed(1)
    model = nn.ModuleList(nn.Linear(FEATURES, 1).double() for _ in range(2))
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        parts = [(model[kind], batch[0][batch[1] == kind]) for kind in range(2)]
        return sum(branch(own).square().sum() for branch, own in parts if len(own)) / len(batch[0])

    return learn(worker, model, optimizer, loss)


def odd_outputs(worker: Any) -> State:
    """A layer without output features, and an output that nothing is learnt from."""
    with warnings.catch_warnings(action="ignore"):  # torch has nothing to initialise
        model = nn.ModuleDict({"used": network(), "empty": nn.Linear(FEATURES, 0).double()})
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        assert not model["used"](batch[0]).detach().requires_grad
        return loss_of(model["used"], batch) + model["empty"](batch[0]).sum()

    return learn(worker, model, optimizer, loss)


def normed_weights(worker: Any) -> State:
    model = network()
    nn.utils.parametrizations.weight_norm(model[0])
    nn.utils.parametrizations.spectral_norm(model[2])
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


def complex_parameters(worker: Any) -> State:
    torch.manual_seed(1)
    model = nn.Linear(FEATURES, CLASSES, dtype=torch.complex128)
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(
        worker, model, optimizer, lambda model, batch: loss_of(lambda one: model(one.to(torch.complex128)).abs(), batch)
    )


def shared_parameters(worker: Any) -> State:
    model = network()
    model.add_module("3", nn.Tanh())
    model.add_module("4", nn.Linear(CLASSES, CLASSES).double())
    model.add_module("5", model[4])
    with torch.no_grad():
        model[4].weight.fill_(0.3)
        model[4].bias.fill_(0.0)
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer)


def nested_outputs(worker: Any) -> State:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, inputs: Tensor) -> Any:
            return {"out": [(self.inner(inputs), "text")], "plain": inputs}

    model = Nested()
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(
        worker, model, optimizer, lambda model, batch: functional.cross_entropy(model(batch[0])["out"][0][0], batch[1])
    )


def another_method_than_forward(worker: Any) -> State:
    class Methods(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def loss(self, batch: Any) -> Tensor:
            return loss_of(self.inner, batch)

    model = Methods()
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, model, optimizer, lambda model, batch: model.loss(batch))


def twice_and_evaluated_between(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))

    def loss(model: nn.Module, batch: Any) -> Tensor:
        with torch.no_grad():
            model.eval()(batch[0])
        return loss_of(model.train(), batch) + loss_of(model, batch) * 0.5

    return learn(worker, model, optimizer, loss)


EQUAL: list[Loop] = [
    seeds_stay,
    buffers,
    unused,
    branches_by_samples,
    odd_outputs,
    normed_weights,
    complex_parameters,
    shared_parameters,
    nested_outputs,
    another_method_than_forward,
    twice_and_evaluated_between,
]
