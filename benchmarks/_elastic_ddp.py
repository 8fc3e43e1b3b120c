"""The program that torchrun restarts when a worker is lost: DDP that saves each step, or its state would be gone.

Arguments: the folder to write to, steps, and samples of each rank. Each rank writes
its process to `pid-RANK`, and rank 0 the step and the time of its end, a line each, to `steps`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train, from the newest checkpoint if there is one."""
    folder, steps, share = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    (folder / f"pid-{rank}").write_text(str(os.getpid()), encoding="utf-8")
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    model, checkpoint, done = DistributedDataParallel(module), folder / "checkpoint.pt", 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
    inputs, targets = torch.randn(share, 256), torch.randint(10, (share,))
    for step in range(done + 1, steps + 1):
        optimizer.zero_grad()
        cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if rank == 0:
            state = {"model": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, folder / "checkpoint.new")
            (folder / "checkpoint.new").replace(checkpoint)
            with (folder / "steps").open("a", encoding="utf-8") as file:
                print(step, time.time(), file=file)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
