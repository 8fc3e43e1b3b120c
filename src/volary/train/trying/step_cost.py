"""The cost of a worker's step, from two passes over a few samples: both grow in proportion to the samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.run.machine.cores import cores_here

if TYPE_CHECKING:
    from torch import Tensor, nn

FEW, SOME = 2, 8  # samples of the two passes; of a share that is smaller, as many as it has


@dataclass(frozen=True)
class StepCost:
    """activations_bytes: what autograd keeps of a pass until its backward, besides parameters. compute_s: of the passes
    of a step, forward and backward, on the cores that a worker has.
    """

    activations_bytes: int
    compute_s: float


def step_cost(module: nn.Module, learn: Callable[[int], None], share: int, passes: int, workers_here: int) -> StepCost:
    """The cost of a step of `passes` passes over `share` samples each. learn: passes over so many samples, forward and
    backward, from the first ones on, and changes nothing. workers_here: that share this machine's cores.
    """
    few, some = min(FEW, share), min(SOME, share)
    with _threads_of_each(workers_here) as slower:
        first, second = _pass(module, learn, few), _pass(module, learn, some)
    more = (share - some) / (some - few) if some > few else 0.0
    kept, seconds = (after + more * max(0, after - before) for before, after in zip(first, second, strict=True))
    return StepCost(round(kept), passes * seconds * slower)


def _pass(module: nn.Module, learn: Callable[[int], None], samples: int) -> tuple[float, float]:
    """Bytes that are kept for backward, and seconds."""
    own = {one.untyped_storage().data_ptr() for one in (*module.parameters(), *module.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    began = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        learn(samples)
    return float(sum(kept.values())), time.perf_counter() - began


@contextmanager
def _threads_of_each(workers_here: int) -> Iterator[float]:
    """As many threads as each of so many workers has; yields how much slower it is where they share a core."""
    cores, threads = len(cores_here()), torch.get_num_threads()
    torch.set_num_threads(max(1, min(threads, cores // workers_here)))
    try:
        yield max(1.0, workers_here / cores)
    finally:
        torch.set_num_threads(threads)
