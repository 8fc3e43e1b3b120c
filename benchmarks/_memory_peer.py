"""The program that torchrun starts for memory.py and partitions.py: DDP or FSDP2 as their users write it."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _fsdp import shard_by_layer
from _networks import alexnet_like


def main(parallel: str, rule: str, steps: int, samples: int, classes: int) -> None:
    """Be one worker. parallel: "DDP" or "FSDP2"."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    images, labels = torch.rand(samples, 3, 32, 32), torch.randint(classes, (samples,))
    model = alexnet_like(classes)
    if parallel == "DDP":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        shard_by_layer(model, init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=0.0001)
    if rule == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
