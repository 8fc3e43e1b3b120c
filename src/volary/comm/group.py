"""Join and leave torch's default group: at the run's board, over the chosen address."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from datetime import timedelta
from types import FrameType

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from volary.comm import gloo
from volary.errors import SettingError

_SEE_OUT_S = 2.0  # for threads to come out of gloo at exit

_store: Store | None = None  # torch keeps only the C++ half of a store that is written in Python


def join(
    store: Store,
    rank: int,
    world_size: int,
    device: torch.device,
    timeout_s: float,
    address: str = "127.0.0.1",
    backend: str = "auto",
) -> None:
    """Make torch's default group: gloo for cpu tensors, NCCL beside it where `device` is cuda; or MPI.

    timeout_s: bound of the meeting and of every collective. address: the address of this machine that the groups
    listen on. backend: "gloo", "nccl" or "mpi" insist on it. Raises SettingError if that does not fit, what the store
    raises, and RuntimeError (torch's) where the ranks cannot connect.
    """
    global _store
    check_backend(backend, device)
    gloo.register(address)
    kinds = gloo.BACKEND
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface_of(address)}")  # "=": this name, not those it begins
        kinds = f"cpu:{gloo.BACKEND},cuda:nccl"
    _store = store
    atexit.register(_leave_at_exit)
    if backend == "mpi":
        _join_by_mpi(rank, world_size)
        return
    dist.init_process_group(kinds, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s))


def check_backend(backend: str, device: torch.device) -> None:
    """Raise SettingError if this torch and `device` do not go with strategy.backend."""
    if backend == "mpi" and not dist.is_mpi_available():
        raise SettingError("backend is 'mpi', and this torch was built without MPI; accepted: auto, gloo, nccl")
    if backend == "nccl" and device.type != "cuda":
        raise SettingError("backend is 'nccl', and training is on the CPU; accepted: auto, gloo, or train.device cuda")
    if backend == "gloo" and device.type == "cuda":
        raise SettingError("backend is 'gloo', and training is on CUDA; accepted: auto, nccl, or train.device cpu")


def _join_by_mpi(rank: int, world_size: int) -> None:
    """MPI's launcher has given the ranks: they must be the run's."""
    dist.init_process_group("mpi")
    if (dist.get_rank(), dist.get_world_size()) != (rank, world_size):
        raise SettingError(
            f"backend is 'mpi', and MPI's launcher calls rank {rank} of {world_size} rank {dist.get_rank()} of "
            f"{dist.get_world_size()}; accepted: the ranks of mpirun, one worker each"
        )


def leave() -> None:
    """Destroy all groups, which joins their threads. Call it before the process ends; harmless when repeated.

    It must not be called while a collective hangs in another thread: `gloo.cut()` first.
    """
    global _store
    if dist.is_initialized():
        dist.destroy_process_group()
    gloo.forget()
    atexit.unregister(_leave_at_exit)
    _store = None


def _leave_at_exit() -> None:
    """A thread that is in gloo when the interpreter ends aborts the process (exit 134): wake it, see it out, leave."""
    gloo.cut()
    deadline = time.monotonic() + _SEE_OUT_S
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread.daemon and _is_in_torch(frames.get(thread.ident or 0)):
            thread.join(max(0.0, deadline - time.monotonic()))
    leave()


def _is_in_torch(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("torch.distributed"):
            return True
        frame = frame.f_back
    return False


def interface_of(address: str) -> str:
    """The name of the network interface that has `address`. Raises SettingError if this machine has none with it."""
    import psutil  # type: ignore[import-untyped]

    interfaces = psutil.net_if_addrs()
    for name, entries in interfaces.items():
        if any(e.family in (socket.AF_INET, socket.AF_INET6) and e.address.split("%")[0] == address for e in entries):
            return str(name)
    raise SettingError(f"this machine has no address {address}; it has the interfaces {', '.join(sorted(interfaces))}")
