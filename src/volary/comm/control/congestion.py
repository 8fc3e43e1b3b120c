"""Chooses how a TCP connection answers loss, by the way that it goes.

Cubic, which most machines have set, takes each lost packet for a sign that the link is full, and sends a third less. On
a long way a packet is often lost for another reason, and many round trips pass until it is as fast as before. BBR
(Cardwell et al. 2016) goes by the rate and the round trip that it measures instead. A way is long by its round trip, as
the kernel measured it when the connection was made. There a packet whose answer is late is sent again after 50 ms, and
not after the 200 that kernels wait at least: many may wait for a short message, and seldom another one follows it that
would show the loss. Where the kernel lacks what is chosen, or does not let this process choose, the connection stays as
it is.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys

from volary.comm.control.sealing import stays_here

FAR_S = 0.01  # round trips within a building or a city are shorter
HERE, FAR = b"reno", b"bbr"  # the first paces nothing, as others do even where there is no network; every Linux has it
LATE_US = 50_000  # beyond the round trip; receivers answer a packet within 40 ms
_LEAST_RETRANSMISSION = 45  # linux/tcp.h, TCP_RTO_MIN_US; of newer kernels
_ROUND_TRIP = struct.Struct("68xI")  # linux/tcp.h, struct tcp_info: tcpi_rtt, microseconds


def suit(connected: socket.socket, address: str) -> None:
    """Choose for a connection to this address."""
    if sys.platform != "linux":
        return
    if stays_here(address):
        _set(connected, socket.TCP_CONGESTION, HERE)
    elif _round_trip_s(connected) >= FAR_S:
        _set(connected, _LEAST_RETRANSMISSION, LATE_US)
        _set(connected, socket.TCP_CONGESTION, FAR)


def _set(connected: socket.socket, option: int, value: int | bytes) -> None:
    with contextlib.suppress(OSError):  # a kernel without it
        connected.setsockopt(socket.IPPROTO_TCP, option, value)


def _round_trip_s(connected: socket.socket) -> float:
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ROUND_TRIP.size)
        (microseconds,) = _ROUND_TRIP.unpack(info)
    except (OSError, struct.error):
        return 0.0
    return float(microseconds) / 1e6
