"""Groups of ranks, made at the run's board and over the chosen address; everybody else is handed one.

This file alone makes torch's groups. torch makes groups out of a default one, which is the run's: so what a user's code
asks of it is right. Nothing else in Volary asks for it.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from types import FrameType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from volary.comm.groups import gloo, mesh
from volary.comm.memory import shared_memory
from volary.errors import SettingError
from volary.sharding.groups import Axis, RankMesh, leads

# of the data path itself, which the driver's watch comes long before: two days, beyond any strategy.stuck_after_s
LAST_RESORT_S = 172_800.0
_SEE_OUT_S = 2.0  # for threads to come out of gloo at exit

_is_cut = False
_store: Store | None = None  # torch keeps only the C++ half of a store that is written in Python


class Bulletin(Protocol):
    """How the ranks of a group tell each other small values before and between steps; this one is `rank` of `size`."""

    rank: int
    size: int

    def post(self, topic: str, value: Any) -> None:
        """Post this rank's value under `topic`."""
        ...

    def read(self, topic: str, rank: int) -> Any:
        """Return what `rank` posts under `topic`; wait for it."""
        ...

    def share(self, topic: str, value: Any) -> list[Any]:
        """Post a value and read everybody's, by rank."""
        ...

    def forget(self, topic: str) -> None:
        """Take back what this rank has posted under `topic`, which nobody reads any more."""
        ...

    def note(self, topic: str, value: Any) -> None:
        """Note a value for all groups of the run, this one and those that come when members change."""
        ...

    def noted(self, topic: str) -> Any:
        """Return the value that was noted last under `topic`; None: none was. Never waits for one."""
        ...

    def within(self, part: str) -> Bulletin:
        """A part of it, whose topics are its own."""
        ...

    def beside(self, part: str) -> Bulletin:
        """A part of it for another thread of each rank: what waits there is not the worker."""
        ...

    def among(self, ranks: Sequence[int]) -> Bulletin:
        """A part of it for these ranks, this one among them; there they are counted from 0, in this order."""
        ...


class Group:
    """Ranks that communicate with each other; this one is `rank` of `size`, and may be in several groups.

    bulletin: small values that they post for each other. timeout_s: bound of every collective. process_group: torch's
    group of them, to be given as `group=`; a group of one needs none.
    """

    def __init__(
        self, bulletin: Bulletin, process_group: dist.ProcessGroup | None = None, timeout_s: float = LAST_RESORT_S
    ) -> None:
        assert process_group is not None or bulletin.size == 1, "several ranks have nothing to communicate over"
        self.bulletin, self.timeout_s = bulletin, timeout_s
        self._process_group, self._divisions = process_group, 0

    @property
    def rank(self) -> int:
        """This rank's place in the group, from 0."""
        return self.bulletin.rank

    @property
    def leads(self) -> bool:
        """Whether this rank acts for the group: it decides for all, writes, and reports what is reported once."""
        return leads(self.rank)

    @property
    def size(self) -> int:
        """How many ranks are in the group."""
        return self.bulletin.size

    @property
    def process_group(self) -> dist.ProcessGroup:
        """The group for functions of `torch.distributed`; never None, which would mean torch's default group there."""
        assert self._process_group is not None, "a rank alone communicates with nobody"
        return self._process_group

    @property
    def is_cut(self) -> bool:
        """Whether `cut` has ended its connections."""
        return _is_cut

    def within(self, part: str) -> Group:
        """The same ranks and connections, with a bulletin whose topics are its own."""
        return Group(self.bulletin.within(part), self._process_group, self.timeout_s)

    def divided(self, parts: Sequence[Sequence[int]]) -> Group:
        """The group of this rank's part: connections and a bulletin of its own, ranks counted from 0 in rising order.

        Of a group of all that joined, and a collective call: all ranks give the same parts, each rank in one of them.
        Dividing in several ways gives each rank several groups, which overlap. Raises RuntimeError (torch's) where
        ranks cannot connect.
        """
        assert self.size == dist.get_world_size(), "a part is not divided again: give smaller parts of the whole"
        assert sorted(rank for part in parts for rank in part) == list(range(self.size)), "each rank is in one part"
        timeout = timedelta(seconds=self.timeout_s)
        # torch names a group by how many were made before it, so all ranks make all of them
        made = [dist.new_group(sorted(part), timeout=timeout) for part in parts]
        place = next(place for place, part in enumerate(parts) if self.rank in part)
        self._divisions += 1
        apart = self.bulletin.within(f"division {self._divisions}").among(sorted(parts[place]))
        return Group(apart, made[place], self.timeout_s)

    def along(self, mesh: RankMesh, *axes: Axis) -> Group:
        """The group of the ranks that differ from this one along these axes alone; this one, if that is all of it.

        A collective call. Raises as `divided`.
        """
        groups = mesh.groups(*axes)
        return self if len(groups) == 1 else self.divided(groups)


def join(
    store: Store,
    bulletin: Bulletin,
    device: torch.device,
    timeout_s: float,
    address: str = "127.0.0.1",
    backend: str = "auto",
    ahead: gloo.GroupAhead | None = None,
) -> Group:
    """Make the group of all ranks of `bulletin`: gloo for cpu tensors, NCCL beside it where `device` is cuda; or MPI.

    timeout_s: bound of the meeting and of every collective. address: the address of this machine that the groups
    listen on. backend: "gloo", "nccl" or "mpi" insist on it. ahead: of these ranks, as far as this one knows. Raises
    SettingError if that does not fit, what the store raises, and RuntimeError (torch's) where the ranks cannot connect.
    """
    global _store, _is_cut
    _is_cut = False
    check_backend(backend, device)
    gloo.register(address, ahead)
    kinds = gloo.BACKEND
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface_of(address)}")  # "=": this name, not those it begins
        kinds = f"cpu:{gloo.BACKEND},cuda:nccl"
    _store = store
    atexit.register(_leave_at_exit)
    if backend == "mpi":
        _join_by_mpi(bulletin.rank, bulletin.size)
    else:
        timeout = timedelta(seconds=timeout_s)
        dist.init_process_group(kinds, store=store, rank=bulletin.rank, world_size=bulletin.size, timeout=timeout)
    whole = dist.group.WORLD
    assert whole is not None
    return Group(bulletin, whole, timeout_s)


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


def cut() -> None:
    """End every connection of the groups, and all waits in shared memory: who waits for a silent peer raises at once.

    From any thread.

    The groups are of no use afterwards.
    """
    global _is_cut
    _is_cut = True
    mesh.close_all()
    gloo.cut()
    shared_memory.cut()


def leave() -> None:
    """Destroy all groups, which joins their threads. Call it before the process ends; harmless when repeated.

    It must not be called while a collective hangs in another thread: `cut()` first.
    """
    global _store
    mesh.close_all()
    if dist.is_initialized():
        dist.destroy_process_group()
    gloo.forget()
    atexit.unregister(_leave_at_exit)
    _store = None


def _leave_at_exit() -> None:
    """A thread that is in gloo when the interpreter ends aborts the process (exit 134): wake it, see it out, leave."""
    cut()
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
    import psutil

    interfaces = psutil.net_if_addrs()
    for name, entries in interfaces.items():
        if any(e.family in (socket.AF_INET, socket.AF_INET6) and e.address.split("%")[0] == address for e in entries):
            return str(name)
    raise SettingError(f"this machine has no address {address}; it has the interfaces {', '.join(sorted(interfaces))}")
