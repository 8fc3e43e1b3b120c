"""Uses on which workers cannot agree, each with the sentence that it ends in."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from train._behaviours._learning import Loop, State, batches, learn, loss_of, sgd
from train._own_loops import CLASSES, FEATURES, network


def replaced_within_a_step(worker: Any) -> State:
    model = worker.distribute(network())
    for batch in batches(worker):
        model[2] = nn.Linear(8, CLASSES).double()
        loss_of(model, batch).backward()
        sgd(model).step()
    return {}


def parameter_of_nobody(worker: Any) -> State:
    scale = nn.Parameter(torch.ones(1))
    model = network()
    model, optimizer = worker.distribute(model, torch.optim.SGD([*model.parameters(), scale], lr=0.1))
    return learn(worker, model, optimizer)


def step_in_backward(worker: Any) -> State:
    model = worker.distribute(network())
    for one in model.parameters():
        one.register_post_accumulate_grad_hook(lambda own: torch.optim.SGD([own], lr=0.1).step())
    for batch in batches(worker):
        loss_of(model, batch).backward()
    return {}


def two_models_that_share(worker: Any) -> State:
    first, second = network(), network()
    second[0] = first[0]
    worker.distribute(first, second)
    return {}


def other_shapes(worker: Any) -> State:
    worker.distribute(nn.Linear(FEATURES, CLASSES + worker.rank))
    return {}


def nonsense(worker: Any) -> State:
    worker.distribute(network(), torch.optim.lr_scheduler.StepLR(sgd(network()), 3))
    return {}


def averaged_by_ddp(worker: Any) -> State:
    worker.distribute(nn.Sequential(nn.parallel.DistributedDataParallel(network())))
    return {}


def sharded_by_fsdp(worker: Any) -> State:
    worker.distribute(fully_shard(network(), mesh=init_device_mesh("cpu", (worker.world_size,))))
    return {}


def averaged_once_more(worker: Any) -> State:
    model = network()
    model, optimizer = worker.distribute(model, sgd(model))
    return learn(worker, nn.parallel.DistributedDataParallel(model), optimizer)


REFUSED: dict[Loop, str] = {
    replaced_within_a_step: (
        "SettingError: the model has other layers, which no worker.feed has seen before this step; accepted: such "
        "changes before the next batch is taken, or worker.distribute(model) after them"
    ),
    parameter_of_nobody: (
        "BadInput: SGD holds a parameter of shape (1,) that no distributed model has, so that workers would not agree "
        "on it; accepted: parameters of models that worker.distribute was given, each in a module"
    ),
    step_in_backward: (
        "SettingError: optimizer.step() was called within backward(), where gradients have not been agreed on"
    ),
    two_models_that_share: (
        "BadInput: worker.distribute: 0.weight is a parameter of a model that is distributed already; accepted: both "
        "models in one module, as torch.nn.ModuleList([first, second])"
    ),
    other_shapes: (
        "RanksDiffer: ranks differ, so nothing was started:\n"
        "  parameter weight: rank 0: (3, 5) float32; rank 1: (4, 5) float32\n"
        "  parameter bias: rank 0: (3,) float32; rank 1: (4,) float32"
    ),
    averaged_by_ddp: (
        "BadInput: worker.distribute was given a model in DistributedDataParallel, which averages gradients or divides "
        "parameters itself; accepted: the model without DistributedDataParallel"
    ),
    sharded_by_fsdp: (
        "BadInput: worker.distribute was given a model in FSDPModule, which averages gradients or divides parameters "
        "itself; accepted: the model without FSDPModule"
    ),
    averaged_once_more: (
        "BadInput: a distributed model is in a DistributedDataParallel, which averages its gradients once more; "
        "accepted: the model that worker.distribute returns, as it is"
    ),
    nonsense: (
        "BadInput: worker.distribute was given a StepLR; accepted: torch modules and optimisers, and lists of these"
    ),
}
