"""A long wire between a host and its switch: `python wire.py NEAR FAR DELAY LOSS`, a process for each host.

NEAR and FAR are network devices that it makes (TAP, as virtual machines have), and whose packets it carries: from FAR,
the host's, to NEAR, the switch's, after DELAY seconds, and a share of LOSS of them nowhere; back at once. Not every
kernel has netem, which does the same. It prints a line once both are there, and ends with its standard input. It is
started without Volary and site packages: only the standard library is imported here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import struct
import sys
import time
from collections import deque

_MAKE = 0x400454CA  # TUNSETIFF
_TAP, _NO_HEADER = 0x0002, 0x1000
_FRAME_BYTES = 2**16
_AT_ONCE = 64  # frames taken in one go


def main() -> None:
    """Carry until standard input ends."""
    near, far = (_device(name) for name in sys.argv[1:3])
    delay_s, loss = map(float, sys.argv[3:5])
    print("ready", flush=True)
    sys.stdout.close()
    under_way: deque[tuple[float, bytes]] = deque()  # when each is to arrive, in this order
    poll = select.poll()
    for descriptor in (0, near, far):
        poll.register(descriptor, select.POLLIN)
    while True:
        left_s = under_way[0][0] - time.monotonic() if under_way else 3600.0
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, left_s) * 1000)}
        if 0 in ready:
            return
        if far in ready:
            arrives = time.monotonic() + delay_s
            under_way.extend((arrives, frame) for frame in _frames(far) if random.random() >= loss)
        if near in ready:
            for frame in _frames(near):
                _pass(far, frame)
        while under_way and under_way[0][0] <= time.monotonic():
            _pass(near, under_way.popleft()[1])


def _device(name: str) -> int:
    """Make a network device; its descriptor, which does not wait."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _MAKE, struct.pack("16sH22s", name.encode(), _TAP | _NO_HEADER, b""))
    return descriptor


def _frames(descriptor: int) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.suppress(OSError):  # no more, or the device is down
        while len(found) < _AT_ONCE:
            found.append(os.read(descriptor, _FRAME_BYTES))
    return found


def _pass(descriptor: int, frame: bytes) -> None:
    with contextlib.suppress(OSError):  # the cable is pulled out there
        os.write(descriptor, frame)


if __name__ == "__main__":
    main()
