"""gloo as the backend "volary": bound to the chosen address, and deaf to newcomers once its mesh stands.

gloo trusts whoever connects, keeps every stranger's descriptor for ever, and ends its process when none is left; its
port stays open for the whole run. Here it listens on one address only; while the ranks connect it admits only the
machines of its group, before and afterwards nobody. Its traffic is neither encrypted nor authenticated.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from msgspec import Struct, json
from torch.distributed.distributed_c10d import Store

from volary.comm import filter as ear

BACKEND = "volary"

_log = logging.getLogger(__name__)
_making = threading.Lock()  # the new descriptors of a device are found by comparing before and after
_address = "127.0.0.1"
_meshes: list[set[int]] = []  # inodes of the connections of each group made here


def register(address: str = "127.0.0.1") -> None:
    """Make the backend BACKEND known to torch; groups made with it from now on listen on `address`."""
    global _address
    _address = address
    dist.Backend.register_backend(BACKEND, _make, devices=["cpu"])


def cut() -> int:
    """Shut down every connection of the groups made here: a collective that hangs on a silent peer raises at once.

    From any thread; the groups are of no use afterwards. Returns how many connections were cut.
    """
    inodes = set().union(*_meshes) if _meshes else set()
    cut_off = 0
    for inode, descriptor in ear.sockets().items():
        if inode in inodes:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:
                twin.shutdown(socket.SHUT_RDWR)
                cut_off += 1
    return cut_off


def forget() -> None:
    """After all groups are destroyed: their connections are no longer ours to cut."""
    _meshes.clear()


def _make(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """What torch calls for each group: device, filter, mesh, filter. Eager: it returns once all pairs are connected."""
    kind: Any = dist.ProcessGroupGloo
    with _making:
        before = ear.listening()
        device = kind.create_device(hostname=_address, lazy_init=False)
        ears = [descriptor for inode, descriptor in ear.listening().items() if inode not in before]
    closable = _closable(ears)
    for descriptor in closable:
        ear.admit_only(descriptor, ())
    members = _introduce(store, rank, size, ears)
    for descriptor in closable:
        ear.admit_only(descriptor, {address for member in members for address in member.addresses})
    store.set(f"volary/ready/{rank}", "yes")
    store.wait([f"volary/ready/{other}" for other in range(size)])  # nobody knocks before all ears are filtered
    options = kind._Options()
    options._devices = [device]
    options._timeout = timeout
    group = kind(store, rank, size, options)
    for descriptor in closable:
        ear.admit_nobody(descriptor)
    _meshes.append(_connections({(member.address, port) for member in members for port in member.ports}))
    return group


def _closable(ears: list[int]) -> list[int]:
    reason = ear.why_not() or ("" if ears else "gloo's listening socket was not found: it stays open to newcomers")
    if reason:
        _log.warning("%s", reason)
        return []
    return ears


def _connections(ears: set[tuple[str, int]]) -> set[int]:
    """The inodes of this process's connections that one of `ears` accepted, here or at another rank."""
    ends = {inode: ear.ends(descriptor) for inode, descriptor in ear.sockets().items()}
    return {inode for inode, pair in ends.items() if len(pair) == 2 and not ears.isdisjoint(pair)}


class _Member(Struct):
    """What a rank tells the others of its ears."""

    address: str
    ports: list[int]
    addresses: list[str]  # all of its machine: a connection may start from another one than its ear is bound to


def _introduce(store: Store, rank: int, size: int, ears: list[int]) -> list[_Member]:
    import psutil  # type: ignore[import-untyped]

    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries]
    addresses = {entry.address for entry in entries if entry.family == socket.AF_INET} | {_address}
    ports = [ear.ends(descriptor)[0][1] for descriptor in ears]
    own = json.encode(_Member(_address, ports, sorted(addresses)))
    store.set(f"volary/member/{rank}", own.decode())  # torch declares text here
    return [json.decode(store.get(f"volary/member/{other}"), type=_Member) for other in range(size)]
