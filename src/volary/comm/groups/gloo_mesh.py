"""Connects the ranks of one group of gloo: it listens on one address, and only until they are connected.

gloo trusts whoever connects, keeps every stranger's descriptor for ever, and ends its process when none is left; its
port would stay open for the whole run. Here the ranks tell each other over the run's keyed board which connections are
theirs, and any other is cut off before a value is sent. Where the kernel allows filters, only the machines of the group
are admitted meanwhile.
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

_End: TypeAlias = tuple[str, int]
_Pair: TypeAlias = tuple[_End, _End]

_log = logging.getLogger(__name__)
_making = threading.Lock()  # the new descriptors of a device are found by comparing before and after


class GlooMeeting:
    """Rank `rank` of `size` meets the others at `store`, and listens at `address` from here on.

    ahead: of this rank, if it has connected before; see `volary.comm.groups.gloo`. everyones_ahead: of all, by rank.
    """

    def __init__(self, store: Store, rank: int, size: int, address: str, ahead: str = "") -> None:
        self._store, self._rank, self._size, self._address = store, rank, size, address
        with _making:
            before = listening_sockets.listening()
            self._device = dist.ProcessGroupGloo.create_device(hostname=address, lazy_init=False)
            self._own = [it for inode, it in listening_sockets.listening().items() if inode not in before]
        self._filtered = [] if listening_sockets.why_no_filter() else self._own
        for descriptor in self._filtered:
            listening_sockets.admit_only(descriptor, ())
        self._members = _introduce(store, rank, size, self._own, address, ahead)
        self.everyones_ahead = [member.ahead for member in self._members]

    def connect(self, timeout: timedelta) -> tuple[Any, set[int]]:
        """Return torch's group of the ranks, all pairs of which are connected, and the inodes of its connections."""
        members, store, rank, size = self._members, self._store, self._rank, self._size
        for descriptor in self._filtered:
            listening_sockets.admit_only(descriptor, {it for member in members for it in member.addresses})
        store.set(f"volary/ready/{rank}", "yes")
        store.wait([f"volary/ready/{other}" for other in range(size)])  # nobody connects before all are filtered
        ends = seen_from_here([end for member in members for end in member.listening], self._address)
        kind: Any = dist.ProcessGroupGloo
        options = kind._Options()
        options._devices = [self._device]
        options._timeout = timeout
        group = kind(GlooStore(store, ends, rank, size), rank, size, options)
        self.close()
        mesh = _mesh(store, rank, members, ends)
        _suit(mesh)
        return group, mesh

    def close(self) -> None:
        """Let nobody connect any more."""
        _close(self._own)

    def cut(self) -> None:
        """Shut down all connections of the ranks, also those that are being made, and let nobody connect any more."""
        for descriptor in self._own:
            with contextlib.suppress(OSError):
                listening_sockets.close(descriptor)
        ends = {end for member in self._members for end in member.listening}
        shut_down({inode for inode, pair in _connections().items() if ends.intersection(pair)})


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
        _log.warning("%d connections that no rank has made were cut off from gloo's port", shut_down(strangers))
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


def shut_down(inodes: set[int]) -> int:
    """Shut connections down; returns how many of these there still were."""
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
    ahead: str = ""


def _introduce(store: Store, rank: int, size: int, listening: list[int], address: str, ahead: str) -> list[_Member]:
    through = forwarder.own()
    addresses = {*ipv4_addresses(), address, *(through.gate_addresses if through else ())}
    own = _Member([listening_sockets.ends(descriptor)[0] for descriptor in listening], sorted(addresses), ahead)
    store.set(f"volary/member/{rank}", json.encode(own).decode())  # torch declares text here
    return [json.decode(text, type=_Member) for text in _of_all(store, "member", size)]


def _of_all(store: Store, topic: str, size: int) -> Iterator[bytes]:
    """Read the value that each rank sets under a topic: in few messages, as the board may be far."""
    keys = [f"volary/{topic}/{rank}" for rank in range(size)]
    for start in range(0, size, READ_AT_ONCE):
        yield from store.multi_get(keys[start : start + READ_AT_ONCE])
