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
) -> None:
    """Make torch's default group: gloo for cpu tensors, NCCL beside it where `device` is cuda.

    timeout_s: bound of the meeting and of every collective. address: the address of this machine that the groups
    listen on. Raises what the store raises, and RuntimeError (torch's) where the ranks cannot connect.
    """
    global _store
    gloo.register(address)
    backend = gloo.BACKEND
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface_of(address)}")  # "=": this name, not those it begins
        backend = f"cpu:{gloo.BACKEND},cuda:nccl"
    _store = store
    atexit.register(_leave_at_exit)
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout_s)
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
