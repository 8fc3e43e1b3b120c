"""The program that engines start for engines.py: LeNet with DistributedDataParallel, as PyTorch users write it.

python _engines_peer.py STEPS             one worker, whose launcher's variables say which
python _engines_peer.py STEPS WORKERS     all of them, by Ray Train
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from _start_ddp import lenet

RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE")


def train(steps: int, folder: Path) -> None:
    """Be one worker of a group that is there; leaves its number of process in `folder` once it has done a step."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    images, classes = torch.rand(1024, 1, 28, 28), torch.randint(10, (1024,))
    model = DistributedDataParallel(lenet())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    mine = slice(rank * 64 // size, (rank + 1) * 64 // size)
    for step in range(steps):
        optimizer.zero_grad()
        loss = cross_entropy(model(images[mine]), classes[mine])
        loss.backward()
        optimizer.step()
        if step == 10:
            draft = folder / f"pid-{rank}.draft"
            draft.write_text(str(os.getpid()), encoding="utf-8")
            draft.rename(folder / f"pid-{rank}")
    if rank == 0:
        torch.save(model.module.state_dict(), folder / "model.pt")


def _by_ray(steps: int, workers: int) -> None:
    import ray  # type: ignore[import-not-found]
    from ray.train import ScalingConfig  # type: ignore[import-not-found]
    from ray.train.torch import TorchTrainer  # type: ignore[import-not-found]

    ray.init(num_cpus=workers + 1, include_dashboard=False, log_to_driver=False)
    settings = {"steps": steps, "folder": str(Path.cwd())}

    def loop(given: dict[str, Any]) -> None:
        train(given["steps"], Path(given["folder"]))

    TorchTrainer(loop, train_loop_config=settings, scaling_config=ScalingConfig(num_workers=workers)).fit()


def main() -> None:
    """Be one worker, or start all."""
    steps = int(sys.argv[1])
    if len(sys.argv) > 2:
        _by_ray(steps, int(sys.argv[2]))
        return
    rank, size = (next(os.environ[name] for name in names if name in os.environ) for names in (RANKS, SIZES))
    if "MASTER_ADDR" in os.environ:
        dist.init_process_group("gloo")
    else:  # a launcher without a meeting point
        meet = Path("meet").absolute().as_uri()
        dist.init_process_group("gloo", init_method=meet, rank=int(rank), world_size=int(size))
    train(steps, Path.cwd())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
