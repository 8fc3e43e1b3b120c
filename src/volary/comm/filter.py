"""Close the ear of a listening socket that is not ours to close: a packet filter in the kernel (Linux, no privilege).

Classic BPF, attached with SO_ATTACH_FILTER: what it rejects is dropped before TCP answers, so a scan finds nothing
and the program behind the socket never wakes. Connections that stand already have sockets of their own and go on.
It judges addresses. It is no proof of who someone is: not against forged addresses, nor other users of this machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import logging
import os
import socket
import struct
import sys
from collections.abc import Collection
from pathlib import Path

_SO_ATTACH_FILTER, _SO_LOCK_FILTER = 26, 44  # asm-generic/socket.h; the socket module has no names for them
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_SOURCE_IPV4 = 0xFFF00000 + 12  # SKF_NET_OFF, then the source address in the IPv4 header
_ALL, _NOTHING = 0xFFFFFFFF, 0
_DESCRIPTORS = Path("/proc/self/fd")

_log = logging.getLogger(__name__)


def why_not() -> str:
    """Empty where ears can be closed, else the sentence that says why they cannot; for `volary doctor`."""
    consequence = "gloo's ports stay open to newcomers while a run goes on"
    if sys.platform != "linux":
        return f"sockets cannot be filtered on {sys.platform}: {consequence}"
    if not _DESCRIPTORS.is_dir():
        return f"there is no {_DESCRIPTORS} in which to find gloo's ports: {consequence}"
    try:
        with socket.socket() as probe:
            admit_nobody(probe.fileno())
    except OSError as problem:
        return f"this system filters no sockets ({problem}): {consequence}"
    return ""


def sockets() -> dict[int, int]:
    """This process's sockets: inode to descriptor. Empty where the system does not list them."""
    found = {}
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else ():  # noqa: PTH208 (names only)
        with contextlib.suppress(OSError):  # the descriptor of this very listing, or one that another thread has closed
            target = os.readlink(_DESCRIPTORS / name)  # noqa: PTH115 (it is no path)
            if target.startswith("socket:["):
                found[int(target[len("socket:[") : -1])] = int(name)
    return found


def listening() -> dict[int, int]:
    """Those of `sockets` that listen."""
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
        _attach(descriptor, [*program, (_RETURN, 0, 0, _NOTHING)])
    except (OSError, ValueError) as problem:
        _log.warning("until the mesh stands, its ports admit every address: %s", problem)
        _attach(descriptor, [(_RETURN, 0, 0, _ALL)])


def admit_nobody(descriptor: int) -> None:
    """Let nobody connect from now on; this cannot be undone. Raises OSError if the kernel refuses."""
    _attach(descriptor, [(_RETURN, 0, 0, _NOTHING)])
    with socket.socket(fileno=os.dup(descriptor)) as twin:
        twin.setsockopt(socket.SOL_SOCKET, _SO_LOCK_FILTER, 1)


def _attach(descriptor: int, program: list[tuple[int, int, int, int]]) -> None:
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
    memory = ctypes.create_string_buffer(code, len(code))  # the kernel copies it during the call
    with socket.socket(fileno=os.dup(descriptor)) as twin:
        twin.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(memory)))


def _listens(descriptor: int) -> bool:
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as twin:  # closing it closes only it
        return bool(twin.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    return False
