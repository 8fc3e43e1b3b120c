"""Tasks of Spark for spark.py: one step of LeNet, with Volary and as users of TorchDistributor write it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from _start_ddp import lenet
from volary.train.own.worker import Worker


def ours(worker: Worker) -> float:
    """When the first step was done, of time.time()."""
    torch.manual_seed(1)
    data = TensorDataset(torch.rand(64, 1, 28, 28), torch.randint(10, (64,)))
    model = lenet()
    model, optimizer = worker.distribute(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5))
    for images, classes in worker.feed(DataLoader(data, batch_size=64)):
        optimizer.zero_grad()
        cross_entropy(model(images), classes).backward()
        optimizer.step()
    return time.time()


def theirs() -> float:
    """The same with DistributedDataParallel."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    images, classes = torch.rand(64, 1, 28, 28), torch.randint(10, (64,))
    model = DistributedDataParallel(lenet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
    cross_entropy(model(images[mine]), classes[mine]).backward()
    optimizer.step()
    ended_s = time.time()
    dist.destroy_process_group()
    return ended_s


def theirs_on_frame(rows: int) -> None:
    """An epoch over as many rows of this task's partition, in batches of 512, as `TorchDistributor` hands them over."""
    distributor: Any = import_module("pyspark.ml.torch.distributor")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(784, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    for images, classes in distributor._get_spark_partition_data_loader(rows, 512):
        optimizer.zero_grad()
        cross_entropy(model(images), classes.long()).backward()
        optimizer.step()
    dist.destroy_process_group()


def counted(batches: Iterator[Any]) -> Iterator[Any]:
    """A job of `mapInArrow` alone: it takes the bytes of rows."""
    arrow: Any = import_module("pyarrow")
    total = sum(batch.nbytes for batch in batches)
    yield arrow.RecordBatch.from_pydict({"bytes": [total]})


def predicting(
    make: Callable[[], torch.nn.Module], shape: tuple[int, ...], layers: tuple[str, ...] = ()
) -> Callable[[], Callable[[Any], Any]]:
    """The function for `predict_batch_udf`: classes of a network, or the outputs of layers of it."""

    def begin() -> Callable[[Any], Any]:
        model, found = make().eval(), dict[str, Tensor]()
        for name in layers:
            model.get_submodule(name).register_forward_hook(
                lambda _, __, output, name=name: found.__setitem__(name, output.clone())
            )

        @torch.no_grad()
        def predict(inputs: Any) -> Any:
            scores = model(torch.from_numpy(inputs).view(-1, *shape))
            if not layers:
                return scores.argmax(1).double().numpy()
            return {name: output.flatten(1).numpy() for name, output in found.items()}

        return predict

    return begin
