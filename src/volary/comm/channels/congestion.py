"""Chooses how a TCP connection answers loss, by the way that it goes.

Cubic, which most machines have set, takes each lost packet for a sign that the link is full, and sends a third less. On
a long way a packet is often lost for another reason, and many round trips pass until it is as fast as before. BBR
(Cardwell et al. 2016) goes by the rate and the round trip that it measures instead. A way is long by its round trip, as
the kernel measured it when the connection was made. Where the kernel lacks what is chosen, or does not let this process
choose, the connection stays as it is.
"""

from __future__ import annotations

import contextlib
import socket
import struct

from volary.comm.control.sealing import stays_here

FAR_S = 0.01  # round trips within a building or a city are shorter
HERE, FAR = b"reno", b"bbr"  # the first paces nothing, as others do even where there is no network; every Linux has it
_ROUND_TRIP = struct.Struct("68xI")  # linux/tcp.h, struct tcp_info: tcpi_rtt, microseconds


def suit(connected: socket.socket, address: str) -> None:
    """Choose for a connection to this address."""
    with contextlib.suppress(AttributeError, OSError, struct.error):  # another system, or a kernel without it
        if control := HERE if stays_here(address) else FAR if _round_trip_s(connected) >= FAR_S else b"":
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control)


def _round_trip_s(connected: socket.socket) -> float:
    (microseconds,) = _ROUND_TRIP.unpack(connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROUND_TRIP.size))
    return float(microseconds) / 1e6
