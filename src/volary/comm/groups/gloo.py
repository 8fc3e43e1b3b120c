"""gloo as the backend "volary": bound to the chosen address, and closed to newcomers once its mesh stands.

gloo trusts whoever connects, keeps every stranger's descriptor for ever, and ends its process when none is left; its
port would stay open for the whole run. Here it listens on one address, only until the ranks are connected; they then
tell each other over the run's keyed board which connections are theirs, and any other is cut off before a value is
sent. Where the kernel allows filters, only the machines of the group are admitted meanwhile. Its traffic is neither
encrypted nor authenticated.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import torch.distributed as dist
from msgspec import Struct, json
from torch.distributed.distributed_c10d import Store

from volary.comm.control import congestion
from volary.comm.groups import listening_sockets
from volary.comm.groups.readdressed import READ_AT_ONCE, GlooStore, seen_from_here
from volary.comm.relay import forwarder
from volary.run.machine.addresses import ipv4_addresses

BACKEND = "volary"
_End: TypeAlias = tuple[str, int]
_Pair: TypeAlias = tuple[_End, _End]

_log = logging.getLogger(__name__)
_making = threading.Lock()  # the new descriptors of a device are found by comparing before and after
_address = "127.0.0.1"
_meshes: list[set[int]] = []  # inodes of the connections of each group made here


def register(address: str = "127.0.0.1") -> None:
    """Make the backend BACKEND known to torch; groups made with it from now on listen on `address`."""
    global _address
    _address = address
    dist.Backend.register_backend(BACKEND, _make, devices=["cpu"])


def address() -> str:
    """This machine's address that groups made from now on listen on."""
    return _address


def cut() -> int:
    """Shut down every connection of the groups made here: a collective that hangs on a silent peer raises at once.

    From any thread; the groups are of no use afterwards. Returns how many connections were cut.
    """
    return _shut_down(set().union(*_meshes))


def forget() -> None:
    """Forget all connections, after all groups are destroyed: they are no longer ours to cut."""
    _meshes.clear()


def _make(store: Store, rank: int, size: int, timeout: timedelta) -> Any:
    """Make a group, as torch asks: device, filter, mesh; nobody listens then. Eager: all pairs are connected."""
    kind: Any = dist.ProcessGroupGloo
    with _making:
        before = listening_sockets.listening()
        device = kind.create_device(hostname=_address, lazy_init=False)
        own = [descriptor for inode, descriptor in listening_sockets.listening().items() if inode not in before]
    filtered = [] if listening_sockets.why_no_filter() else own
    for descriptor in filtered:
        listening_sockets.admit_only(descriptor, ())
    members = _introduce(store, rank, size, own)
    for descriptor in filtered:
        listening_sockets.admit_only(descriptor, {address for member in members for address in member.addresses})
    store.set(f"volary/ready/{rank}", "yes")
    store.wait([f"volary/ready/{other}" for other in range(size)])  # nobody connects before all are filtered
    ends = seen_from_here([end for member in members for end in member.listening], _address)
    options = kind._Options()
    options._devices = [device]
    options._timeout = timeout
    group = kind(GlooStore(store, ends, rank, size), rank, size, options)
    _close(own)
    _meshes.append(_mesh(store, rank, members, ends))
    _suit(_meshes[-1])
    return group


def _close(own: list[int]) -> None:
    closed = [listening_sockets.close(descriptor) for descriptor in own]
    if not closed or not all(closed):
        reason = listening_sockets.why_not() or "gloo's listening socket was not found: it stays open to newcomers"
        _log.warning("%s", reason)


def _mesh(store: Store, rank: int, members: Sequence[_Member], ends: Mapping[_End, _End]) -> set[int]:
    """The inodes of the connections that members have made; who else has connected to this rank is cut off.

    ends: as of `seen_from_here`. A connection through a gate is, to others, that of the gate.
    """
    own, known = set(members[rank].listening), {one for member in members for one in member.listening}
    ways = {there: end for end, there in ends.items()}
    begun = {inode: pair for inode, pair in _connections().items() if pair[1] in (known | ways.keys()) - own}
    through = forwarder.own()
    made = [(through.end_of(*pair), ways[pair[1]]) if through and pair[1] in ways else pair for pair in begun.values()]
    if through:
        for end in ends:
            through.shut(end)
    store.set(f"volary/connections/{rank}", json.encode(made).decode())
    posted = [json.decode(text, type=list[_Pair]) for text in _of_all(store, "connections", len(members))]
    expected = {(there, here) for pairs in posted for here, there in pairs if there in own}
    accepted = {inode: pair for inode, pair in _connections().items() if pair[0] in own}
    if not expected <= set(accepted.values()):
        _log.warning("addresses are translated between the machines: who else may have connected to gloo is not known")
        return {*begun, *accepted}
    strangers = {inode for inode, pair in accepted.items() if pair not in expected}
    if strangers:
        _log.warning("%d connections that no rank has made were cut off from gloo's port", _shut_down(strangers))
    return {*begun, *accepted} - strangers


def _suit(inodes: set[int]) -> None:
    """Let these connections answer loss as suits the way that each goes."""
    for inode, descriptor in listening_sockets.sockets().items():
        if inode in inodes and len(pair := listening_sockets.ends(descriptor)) == 2:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:
                congestion.suit(twin, pair[1][0])


def _connections() -> dict[int, _Pair]:
    """This process's connections, by inode: the end here, and the end there."""
    pairs = ((inode, listening_sockets.ends(descriptor)) for inode, descriptor in listening_sockets.sockets().items())
    return {inode: (pair[0], pair[1]) for inode, pair in pairs if len(pair) == 2}


def _shut_down(inodes: set[int]) -> int:
    """How many of these connections there still were."""
    found = 0
    for inode, descriptor in listening_sockets.sockets().items():
        if inode in inodes:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:
                twin.shutdown(socket.SHUT_RDWR)
                found += 1
    return found


class _Member(Struct):
    """A rank's report on its listening sockets to the others."""

    listening: list[_End]
    addresses: list[str]  # all of its machine: a connection may start from another one than it listens at


def _introduce(store: Store, rank: int, size: int, listening: list[int]) -> list[_Member]:
    through = forwarder.own()
    addresses = {*ipv4_addresses(), _address, *(through.gate_addresses if through else ())}
    own = json.encode(_Member([listening_sockets.ends(descriptor)[0] for descriptor in listening], sorted(addresses)))
    store.set(f"volary/member/{rank}", own.decode())  # torch declares text here
    return [json.decode(text, type=_Member) for text in _of_all(store, "member", size)]


def _of_all(store: Store, topic: str, size: int) -> Iterator[bytes]:
    """Read the value that each rank sets under a topic: in few messages, as the board may be far."""
    keys = [f"volary/{topic}/{rank}" for rank in range(size)]
    for start in range(0, size, READ_AT_ONCE):
        yield from store.multi_get(keys[start : start + READ_AT_ONCE])
