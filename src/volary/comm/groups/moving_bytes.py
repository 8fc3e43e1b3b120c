"""Whether the connections of this process carry anything at the moment, by what the kernel counts of each.

A link that carries bytes is slow, not cut, and waiting for it is right. Linux counts the bytes of every TCP connection
(TCP_INFO), also of those that a library has opened. On other systems no movement is seen.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct

from volary.comm.groups.listening_sockets import sockets

_COUNTED = struct.Struct("120x2Q")  # linux/tcp.h, struct tcp_info: tcpi_bytes_acked, tcpi_bytes_received


class MovingBytes:
    """Compares what each connection has carried with the look before."""

    def __init__(self) -> None:
        self._before: dict[int, int] | None = None

    def seen(self, apart_from: int) -> bool:
        """Whether one has carried something since the last look. apart_from: a descriptor that does not count."""
        carried = {inode: _carried(descriptor) for inode, descriptor in sockets().items() if descriptor != apart_from}
        before, self._before = self._before, carried
        return before is not None and any(count > before.get(inode, 0) for inode, count in carried.items())


def _carried(descriptor: int) -> int:
    """Bytes that its other end has acknowledged or sent; 0 for what is no connection, or not counted."""
    with contextlib.suppress(AttributeError, OSError, struct.error), socket.socket(fileno=os.dup(descriptor)) as twin:
        return sum(_COUNTED.unpack(twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTED.size)))
    return 0
