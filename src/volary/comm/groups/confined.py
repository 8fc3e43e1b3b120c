"""Listening sockets of a process that we have started: let only this machine reach them (Linux, no privilege).

mpirun listens on all addresses for daemons on other machines, also where there are none, and has no setting against it.
The kernel lends us its sockets (pidfd_getfd, as to a debugger) and filters what arrives at them (classic BPF).
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from volary.comm.groups.listening_sockets import attach

_PIDFD_GETFD = 438  # on every architecture; neither os nor libc has it everywhere
_LOAD, _LOAD_HALF, _AND, _IF_EQUAL, _RETURN = 0x20, 0x28, 0x54, 0x15, 0x06
_PROTOCOL, _HEADER = 0xFFFFF000, 0xFFF00000  # SKF_AD_OFF + SKF_AD_PROTOCOL, SKF_NET_OFF
_IPV4, _IPV6 = 0x0800, 0x86DD
_ALL, _NOTHING = 0xFFFFFFFF, 0
# from 127.0.0.0/8, or from ::1; jumps count instructions, and the last two are "take it" and "drop it"
_FROM_LOOPBACK = [
    (_LOAD_HALF, 0, 0, _PROTOCOL),
    (_IF_EQUAL, 0, 3, _IPV4),
    (_LOAD, 0, 0, _HEADER + 12),
    (_AND, 0, 0, 0xFF000000),
    (_IF_EQUAL, 9, 10, 0x7F000000),
    (_IF_EQUAL, 0, 9, _IPV6),
    (_LOAD, 0, 0, _HEADER + 8),
    (_IF_EQUAL, 0, 7, 0),
    (_LOAD, 0, 0, _HEADER + 12),
    (_IF_EQUAL, 0, 5, 0),
    (_LOAD, 0, 0, _HEADER + 16),
    (_IF_EQUAL, 0, 3, 0),
    (_LOAD, 0, 0, _HEADER + 20),
    (_IF_EQUAL, 0, 1, 1),
    (_RETURN, 0, 0, _ALL),
    (_RETURN, 0, 0, _NOTHING),
]


def why_not() -> str:
    """Empty where that can be done, else the system's reason."""
    if sys.platform != "linux":
        return f"{sys.platform} has no means for it"
    try:
        with socket.socket() as probe, _lent(os.getpid(), probe.fileno()) as twin:
            attach(twin.fileno(), _FROM_LOOPBACK)
    except OSError as error:
        return str(error)
    return ""


class Confined:
    """The listening sockets of process `pid`, as they appear."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: set[str] = set()

    def look(self) -> None:
        """Confine those that are new. Does nothing where the system forbids it (see `why_not`)."""
        with contextlib.suppress(OSError):
            for descriptor, kind in _sockets(self._pid):
                if kind not in self._known:
                    with _lent(self._pid, descriptor) as twin:
                        if _is_open(twin):
                            attach(twin.fileno(), _FROM_LOOPBACK)
                        # one that does not listen yet may do so at the next look
                        if _listens(twin) or not _may_listen(twin):
                            self._known.add(kind)


def _sockets(pid: int) -> Iterator[tuple[int, str]]:
    folder = Path(f"/proc/{pid}/fd")
    for name in os.listdir(folder):  # noqa: PTH208 (names only)
        with contextlib.suppress(OSError):  # closed meanwhile
            kind = os.readlink(folder / name)  # noqa: PTH115 (it is no path)
            if kind.startswith("socket:"):
                yield int(name), kind


def _lent(pid: int, descriptor: int) -> socket.socket:
    """Another process's socket, as one of ours. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    try:
        ours = libc.syscall(_PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    if ours < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return socket.socket(fileno=ours)


def _may_listen(sock: socket.socket) -> bool:
    return sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM


def _listens(sock: socket.socket) -> bool:
    return _may_listen(sock) and bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_open(sock: socket.socket) -> bool:
    """Whether it listens beyond loopback."""
    return _listens(sock) and not ipaddress.ip_address(sock.getsockname()[0]).is_loopback
