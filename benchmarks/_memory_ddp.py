"""What torchrun starts for memory.py: the same training with DistributedDataParallel, as PyTorch users write it."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _networks import alexnet_like


def main(rule: str, steps: int, samples: int, classes: int) -> None:
    """Be one worker."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    images, labels = torch.rand(samples, 3, 32, 32), torch.randint(classes, (samples,))
    model = DistributedDataParallel(alexnet_like(classes), gradient_as_bucket_view=True)
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
    main(sys.argv[1], *map(int, sys.argv[2:]))
