"""Cuts a batch into the parts that pass through a worker's network at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from volary.train.coordinator import MicroBatch

if TYPE_CHECKING:
    from volary.data.batching.batch import Batch
    from volary.train.model import TrainedNetwork


def micro_batches(batch: Batch, pieces: int, network: TrainedNetwork, number: Callable[[int], int]) -> list[MicroBatch]:
    """Up to `pieces` parts, on the network's device; nobody knows their weights yet.

    number: the number in the data of the sample at a place of the batch.
    """
    held = batch.to(network.device)
    if network.mixing is not None:
        batch = held = network.mixing(held)
    # counted where the targets are read: on another device that would be waited for
    counts = [network.flow.counted(part.targets) for part in batch.parts(pieces)]
    found, first = list[MicroBatch](), 0
    for part, counted in zip(held.parts(pieces), counts, strict=True):
        numbered = _after(first, number)
        found.append(waiting(part.inputs, part.targets, part.count, counted, numbered))
        first += part.count
    return found


def waiting(inputs: object, targets: object, count: int, counted: float, number: Callable[[int], int]) -> MicroBatch:
    """A part of which a coordinator has yet to say what it weighs, and what follows it."""
    return MicroBatch(inputs, targets, count, counted, weight=0.0, last=False, updates=False, number=number)


def _after(first: int, number: Callable[[int], int]) -> Callable[[int], int]:
    return lambda place: number(first + place)
