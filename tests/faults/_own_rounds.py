"""The rounds of some workers that take steps of their own, all computed by one process."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from volary.sharding.samples import SampleShare

EPOCHS, SAMPLES, BATCH = 4, 256, 33


def data() -> TensorDataset:
    draws = torch.Generator().manual_seed(3)
    inputs = torch.randn(SAMPLES, 16, generator=draws).double()
    return TensorDataset(inputs, torch.randint(4, (SAMPLES,), generator=draws))


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).double()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def rounds_of(period: int) -> list[list[tuple[int, int]]]:
    """The rounds of all epochs: of each step the first sample and the one after the last."""
    steps = [(first, min(first + BATCH, SAMPLES)) for first in range(0, SAMPLES, BATCH)]
    return [steps[first : first + period] for _ in range(EPOCHS) for first in range(0, len(steps), period)]


def trained(model: dict[str, Any], workers: int, changes: list[tuple[int, set[int]]]) -> dict[int, dict[str, Any]]:
    """The parameters by rank and name after all rounds. changes: after which step who is there no more."""
    consistency = import_module(f"volary.consistency.{model['name']}").CONSISTENCY(period=model["period"])
    replicas = {rank: network() for rank in range(workers)}
    optimizers = {rank: optimizer_of(one) for rank, one in replicas.items()}
    centre = [nn.Parameter(one.detach().clone()) for one in replicas[0].parameters()]
    outer = {name: one for name, one in model.get("outer", {"lr": 1.0}).items() if name != "name"}
    rule = torch.optim.SGD(centre, **outer)
    step, here = 0, list(replicas)
    for batches in rounds_of(model["period"]):
        before = here
        here = [rank for rank in here if not any(after <= step and rank in gone for after, gone in changes)]
        own = [list(replicas[rank].parameters()) for rank in here]
        alone = len(here) == 1
        if alone and before != here and model["name"] == "elastic":  # from the centre
            replicas[here[0]].load_state_dict(dict(zip(replicas[here[0]].state_dict(), centre, strict=True)))
        part = None if alone else consistency.pull(len(here))
        pulls = [[part * (x - c).detach() for x, c in zip(one, centre, strict=True)] if part else [] for one in own]
        counted = [0] * len(here)
        for place, rank in enumerate(here):
            for number, batch in enumerate(batches):
                counted[place] += learn(replicas[rank], optimizers[rank], batch, SampleShare(place, len(here)))
                with torch.no_grad():
                    for x, pull in zip(own[place], pulls[place] if not number else [], strict=False):
                        x -= pull
        with torch.no_grad():
            if alone:
                pass
            elif model["name"] == "local":
                for number, c in enumerate(centre):
                    mean = sum(n / sum(counted) * one[number] for n, one in zip(counted, own, strict=True))
                    c.grad = c - mean
                rule.step()
                for one in own:
                    for x, c in zip(one, centre, strict=True):
                        x.copy_(c)
            elif model["name"] == "elastic":
                for number, c in enumerate(centre):
                    c += sum(pull[number] for pull in pulls)
            else:
                means = [
                    [
                        sum(values) / len(values)
                        for values in zip(*(own[other] for other in (place, *partners)), strict=True)
                    ]
                    for place in range(len(here))
                    for partners in [consistency.partners(step, place, len(here))]
                ]
                for one, mean in zip(own, means, strict=True):
                    for x, m in zip(one, mean, strict=True):
                        x.copy_(m)
        step += len(batches)
    return {rank: dict(replicas[rank].named_parameters()) for rank in here}


def learn(model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[int, int], share: SampleShare) -> int:
    """One step of a worker with its share of a batch; how many samples that has."""
    first, end = batch
    inputs, targets = data()[first:end]
    own = share.of(end - first, BATCH)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs[own]), targets[own]).backward()
    optimizer.step()
    return len(targets[own])
