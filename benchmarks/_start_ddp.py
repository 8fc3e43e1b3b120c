"""The program that torchrun starts for start.py: one step of LeNet with DistributedDataParallel."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def lenet() -> nn.Module:
    """LeNet for 28 x 28 pixels."""
    return nn.Sequential(
        *(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10)),
    )


def main() -> None:
    """Be one worker."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    images, classes = torch.rand(1024, 1, 28, 28), torch.randint(10, (1024,))
    model = DistributedDataParallel(lenet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
    loss = cross_entropy(model(images[mine]), classes[mine])
    loss.backward()
    optimizer.step()
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
        print(f"loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
