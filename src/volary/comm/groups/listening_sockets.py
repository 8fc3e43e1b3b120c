"""Listening sockets that a library opened and keeps open: admit fewer, then nobody (Linux, no privilege).

`close` takes the socket out of the library's hands: its descriptor, and its place among what the library waits for
(epoll), go to a socket at which nobody is ever heard, and the one that listened is closed. Connections that stand have
sockets of their own and go on. Until then `admit_only` lets a packet filter of the kernel (classic BPF,
SO_ATTACH_FILTER) drop what comes from other addresses, which some kernels refuse to ordinary users. It judges
addresses and proves nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import logging
import os
import select
import socket
import struct
import sys
from collections.abc import Collection
from pathlib import Path

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h; the socket module has no name for it
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_SOURCE_IPV4 = 0xFFF00000 + 12  # SKF_NET_OFF, then the source address in the IPv4 header
_ALL, _NOTHING = 0xFFFFFFFF, 0
_DESCRIPTORS = Path("/proc/self/fd")

_log = logging.getLogger(__name__)


def why_not() -> str:
    """Empty where they can be closed, else the sentence that says why not; for `volary doctor`."""
    consequence = "gloo's ports stay open to newcomers while a run goes on"
    if sys.platform != "linux":
        return f"a library's sockets cannot be closed on {sys.platform}: {consequence}"
    if not _DESCRIPTORS.is_dir():
        return f"there is no {_DESCRIPTORS} in which to find gloo's ports: {consequence}"
    return ""


def why_no_filter() -> str:
    """Empty where `admit_only` works, else the kernel's reason."""
    try:
        with socket.socket() as probe:
            attach(probe.fileno(), [(_RETURN, 0, 0, _NOTHING)])
    except OSError as problem:
        return str(problem)
    return ""


def sockets() -> dict[int, int]:
    """This process's sockets: inode to descriptor. Empty where the system does not list them."""
    begin = "socket:["
    return {int(kind[len(begin) : -1]): number for number, kind in _open() if kind.startswith(begin)}


def listening() -> dict[int, int]:
    """Inode and descriptor of each of this process's sockets that listens."""
    return {inode: descriptor for inode, descriptor in sockets().items() if _listens(descriptor)}


def ends(descriptor: int) -> list[tuple[str, int]]:
    """Address and port at this side and, where connected, at the other; nothing for what is no internet socket."""
    found: list[tuple[str, int]] = []
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:  # closing it closes only it
        if twin.family in (socket.AF_INET, socket.AF_INET6):
            found.append(twin.getsockname()[:2])
            found.append(twin.getpeername()[:2])
    return found


def admit_only(descriptor: int, sources: Collection[str]) -> None:
    """Let only these addresses connect, instead of those admitted before.

    IPv4 only. Where that cannot be had (IPv6, more addresses than the kernel takes) all are admitted, and it is logged.
    """
    program = [(_LOAD_WORD, 0, 0, _SOURCE_IPV4)]
    try:
        for number in sorted({int(ipaddress.IPv4Address(source)) for source in sources}):
            program += [(_JUMP_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALL)]
        attach(descriptor, [*program, (_RETURN, 0, 0, _NOTHING)])
    except (OSError, ValueError) as problem:
        _log.warning("until the mesh stands, its ports admit every address: %s", problem)
        attach(descriptor, [(_RETURN, 0, 0, _ALL)])


def close(descriptor: int) -> bool:
    """Close the listening socket behind `descriptor`, which stays the library's. Raises OSError.

    False if no epoll of this process waits for it: nothing was done. Safe while another thread accepts: what takes its
    place says that nobody waits, as the old one would.
    """
    waiter = _waiter(descriptor)
    if waiter is None:
        return False
    with waiter, socket.socket(fileno=os.dup(descriptor)) as old, socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind("")  # a name of the kernel's, which leads whoever tries it to wait for ever
        deaf.listen(0)
        deaf.setblocking(False)
        os.dup2(deaf.fileno(), descriptor, inheritable=False)
        waiter.register(descriptor, 0)  # the library takes it out of there one day, and ends its process if it cannot
        old.shutdown(socket.SHUT_RDWR)  # a child that was forked meanwhile may have it, too
    return True


def _waiter(descriptor: int) -> select.epoll | None:
    """The epoll of this process that waited for `descriptor`, and does no longer."""
    for number, kind in _open():
        if kind == "anon_inode:[eventpoll]":
            waiter = select.epoll.fromfd(os.dup(number))
            try:
                waiter.unregister(descriptor)
            except OSError:  # it waits for others
                waiter.close()
            else:
                return waiter
    return None


def _open() -> list[tuple[int, str]]:
    """This process's descriptors, and what the system calls each."""
    found = []
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else ():  # noqa: PTH208 (names only)
        with contextlib.suppress(OSError):  # the descriptor of this very listing, or one that another thread has closed
            found.append((int(name), os.readlink(_DESCRIPTORS / name)))  # noqa: PTH115 (it is no path)
    return found


def attach(descriptor: int, program: list[tuple[int, int, int, int]]) -> None:
    """Have the kernel judge what arrives at a socket by a classic BPF program. Raises OSError."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    memory = ctypes.create_string_buffer(code, len(code))  # the kernel copies it during the call
    with socket.socket(fileno=os.dup(descriptor)) as twin:
        twin.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(memory)))


def _listens(descriptor: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:  # closing it closes only it
        return bool(twin.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False
