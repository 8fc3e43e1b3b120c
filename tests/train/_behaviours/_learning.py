"""Common parts of this folder's loops: batches, an optimiser, a loss, and learning with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from train._own_loops import points

State = dict[str, Any]
Loop = Callable[[Any], State]


def batches(worker: Any, epochs: int = 3) -> Iterator[tuple[Tensor, Tensor]]:
    """Some epochs of 5 batches, the last of 3 samples."""
    loader = worker.feed(DataLoader(points(19), batch_size=4, shuffle=True))
    for _ in range(epochs):
        yield from loader


def sgd(*models: nn.Module, lr: float = 0.2, momentum: float = 0.9) -> torch.optim.SGD:
    return torch.optim.SGD([one for model in models for one in model.parameters()], lr=lr, momentum=momentum)


def loss_of(model: nn.Module, batch: Any) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def learn(
    worker: Any, model: nn.Module, optimizer: Any, loss: Callable[..., Tensor] = loss_of, epochs: int = 3
) -> State:
    for batch in batches(worker, epochs):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    return dict(model.state_dict())
