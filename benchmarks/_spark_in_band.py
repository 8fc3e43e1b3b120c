"""Steps of a network whose gradients travel inside Spark, for spark.py: plain sketches of it, beside Volary's jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch exports it untyped
from torch.nn.functional import cross_entropy

TASKS, BATCH, VALUES, CLASSES, WIDTH = 2, 256, 784, 10, 3_148
WARM, COUNTED = 2, 8  # steps
RATE = 0.05
Share = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


class Wide(nn.Module):
    """10 MB of parameters, little to compute."""

    def __init__(self, input_shape: tuple[int, ...] = (1, 28, 28), classes: int = CLASSES) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(VALUES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Score images (n, 1, 28, 28)."""
        scores: Tensor = self.layers(x)
        return scores


def gradient(weights: bytes, share: Share) -> np.ndarray[Any, Any]:
    """The gradient (values,) of a share of a batch, by what a task was sent."""
    module = Wide()
    nn.utils.vector_to_parameters(torch.from_numpy(np.frombuffer(weights, np.float32).copy()), module.parameters())
    inputs, targets = (torch.from_numpy(one) for one in share)
    cross_entropy(module(inputs), targets).div(TASKS).backward()
    return torch.cat([one.grad.flatten() for one in module.parameters() if one.grad is not None]).numpy()


def by_driver(weights: Any, shares: Any) -> np.ndarray[Any, Any]:
    """Every task's gradient goes to the driver, which adds them up. weights: as Spark has broadcast them."""
    found = shares.map(lambda share: gradient(weights.value, share).tobytes()).collect()
    total: np.ndarray[Any, Any] = np.sum([np.frombuffer(one, np.float32) for one in found], axis=0)
    return total


def by_shuffle(weights: Any, shares: Any) -> np.ndarray[Any, Any]:
    """Slice i of all gradients goes to task i, which adds it up, and the slices to the driver."""

    def sliced(share: Share) -> Iterator[tuple[int, bytes]]:
        pieces = np.array_split(gradient(weights.value, share), TASKS)
        return ((number, piece.tobytes()) for number, piece in enumerate(pieces))

    def summed(rows: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        mine = list(rows)
        yield mine[0][0], np.sum([np.frombuffer(one, np.float32) for _, one in mine], axis=0).tobytes()

    found = dict(shares.flatMap(sliced).partitionBy(TASKS, int).mapPartitions(summed).collect())
    return np.concatenate([np.frombuffer(found[number], np.float32) for number in range(TASKS)])


def by_tree(weights: Any, shares: Any) -> np.ndarray[Any, Any]:
    """Spark's own `treeReduce`."""
    found: np.ndarray[Any, Any] = shares.map(lambda share: gradient(weights.value, share)).treeReduce(
        lambda one, other: one + other, depth=2
    )
    return found


SKETCHES = {"driver sum": by_driver, "shuffle": by_shuffle, "tree": by_tree}


def seconds_a_step(spark: Any, summed: Callable[[Any, Any], np.ndarray[Any, Any]]) -> float:
    """The median of the steps of a sketch, each with a batch of its own and an update on the driver."""
    context, rng = spark.sparkContext, np.random.default_rng(1)
    weights = nn.utils.parameters_to_vector(Wide().parameters()).detach().numpy().copy()
    taken = []
    for _ in range(WARM + COUNTED):
        inputs = rng.random((TASKS, BATCH // TASKS, 1, 28, 28), dtype=np.float32)
        targets = rng.integers(0, CLASSES, (TASKS, BATCH // TASKS))
        began_s = time.perf_counter()
        sent = context.broadcast(weights.tobytes())
        weights -= RATE * summed(sent, context.parallelize(list(zip(inputs, targets, strict=True)), TASKS))
        sent.unpersist()
        taken.append(time.perf_counter() - began_s)
    return median(taken[WARM:])


def gloo(spark: Any) -> float:
    """Seconds of a sum of as many values between the tasks of a barrier stage, outside of Spark; a median."""

    def timed(rows: Iterator[Any]) -> Iterator[float]:
        from pyspark import BarrierTaskContext

        list(rows)  # numbers, which say nothing
        context = BarrierTaskContext.get()
        rank = context.partitionId()
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if rank == 0 else None
        port = int(context.allGather(str(store.port) if store else "")[0])
        dist.init_process_group("gloo", store=store or TCPStore("127.0.0.1", port), rank=rank, world_size=TASKS)
        values, taken = torch.cat([one.detach().flatten() for one in Wide().parameters()]), []
        for _ in range(WARM + COUNTED):
            began_s = time.perf_counter()
            dist.all_reduce(values)
            taken.append(time.perf_counter() - began_s)
        dist.destroy_process_group()
        yield median(taken[WARM:])

    found: list[float] = spark.sparkContext.parallelize(range(TASKS), TASKS).barrier().mapPartitions(timed).collect()
    return max(found)
