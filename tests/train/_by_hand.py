"""Local steps by hand: workers learn apart, each from its share of the same batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def step_apart(everyone: Sequence[Any], rules: Sequence[torch.optim.Optimizer]) -> tuple[list[int], bool]:
    """One step of each worker by its own rule; how many samples each had, and whether the batch ends an epoch."""
    numbers = []
    for rank, rule in enumerate(rules):
        batch = next(everyone[rank].coordinator.rank.data.feed)
        inputs, targets = batch.inputs[rank :: len(rules)], batch.targets[rank :: len(rules)]
        if len(inputs):
            rule.zero_grad()
            everyone[rank].flow(inputs, targets).backward()
            rule.step()
        numbers.append(len(inputs))
    return numbers, batch.ends_epoch
