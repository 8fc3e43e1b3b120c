"""The machine's processors, memory, devices and network as plain facts: nothing is judged here."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import shutil
from dataclasses import dataclass
from pathlib import Path

import volary

SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class TorchBuild:
    """The build of torch, and what it sees. built_for: cpu, or the version of CUDA. accelerators: their names."""

    version: str
    built_for: str
    accelerators: list[str]
    bf16_on_accelerator: bool
    backends: dict[str, bool]


@dataclass(frozen=True)
class Machine:
    """Sizes in bytes, limits as (soft, hard) with -1 for none; None where the system does not tell or torch is missing.

    core_quota: how many cores a container's quota amounts to.
    """

    volary: str
    python: str
    system: str
    cores: int
    usable_cores: list[int]
    core_quota: float | None
    memory_bytes: int
    shared_memory_bytes: int | None
    disk_free_bytes: int
    open_files: tuple[int, int]
    locked_memory: tuple[int, int]
    nvidia_devices: int
    torch: TorchBuild | None


def look() -> Machine:
    """The machine that this process is on; imports torch."""
    return Machine(
        volary=volary.__version__,
        python=platform.python_version(),
        system=platform.platform(),
        cores=os.cpu_count() or 1,
        usable_cores=_affinity(),
        core_quota=_quota(),
        memory_bytes=_memory(),
        shared_memory_bytes=_size(SHARED_MEMORY),
        disk_free_bytes=shutil.disk_usage(Path.cwd()).free,
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        locked_memory=resource.getrlimit(resource.RLIMIT_MEMLOCK),
        nvidia_devices=len(list(Path("/dev").glob("nvidia[0-9]*"))),
        torch=_torch(),
    )


def _affinity() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _quota() -> float | None:
    try:
        allowed, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(allowed) / int(period)
    except (OSError, ValueError):
        return None


def _memory() -> int:
    """The machine's memory, or the container's limit if that is less."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError):
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(size for size in sizes if size > 0)


def _size(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def _torch() -> TorchBuild | None:
    try:
        import torch
        import torch.distributed as dist
    except (ImportError, OSError):
        return None
    on_cuda = torch.cuda.is_available()
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())] if on_cuda else []
    if torch.backends.mps.is_available():
        names.append("Apple MPS")
    there = dist.is_available()
    return TorchBuild(
        version=torch.__version__,
        built_for=f"CUDA {torch.version.cuda}" if torch.version.cuda else "cpu",
        accelerators=names,
        bf16_on_accelerator=on_cuda and torch.cuda.is_bf16_supported(),
        backends={
            "gloo": there and dist.is_gloo_available(),
            "nccl": there and dist.is_nccl_available(),
            "mpi": there and dist.is_mpi_available(),
        },
    )
