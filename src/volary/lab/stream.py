"""Two ends of TCP flows: `python -m volary.lab.stream receive|send ADDRESS SECONDS FLOWS`, run by lab/measure.py."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import sys
import time

PORT = 5201
START_S = 20.0  # until a receiver listens, and until all its senders have come
_PIECE_BYTES = 256 * 1024
_BIN_S = 0.01


def receive(address: str, seconds: float, flows: int) -> list[tuple[float, int]]:
    """Take what comes, for so long after the last of `flows` senders has come. Raises TimeoutError if one does not.

    Returns when (time.monotonic, which all hosts of a lab share) how many bytes of payload had arrived.
    """
    seen: list[tuple[float, int]] = []
    total, room, give_up = 0, bytearray(_PIECE_BYTES), time.monotonic() + START_S
    with contextlib.ExitStack() as sockets, selectors.DefaultSelector() as selector:
        server = sockets.enter_context(socket.create_server((address, PORT), backlog=256))
        selector.register(server, selectors.EVENT_READ)
        while not seen or seen[-1][0] < seen[0][0] + seconds:
            for key, _ in selector.select(_BIN_S):
                if key.fileobj is server:
                    selector.register(sockets.enter_context(server.accept()[0]), selectors.EVENT_READ)
                    flows -= 1
                elif isinstance(key.fileobj, socket.socket):
                    total += key.fileobj.recv_into(room)
            now = time.monotonic()
            if flows == 0 and (not seen or now - seen[-1][0] >= _BIN_S):
                seen.append((now, total))
            if flows and now > give_up:
                raise TimeoutError(f"{flows} senders did not come within {START_S:.0f} s")
    return seen


def send(address: str, seconds: float) -> None:
    """Send as much as the way to `address` takes, until the receiver has had enough."""
    piece = bytes(_PIECE_BYTES)
    with _connect(address) as sock, contextlib.suppress(OSError):
        sock.settimeout(seconds + START_S)
        while True:
            sock.sendall(piece)


def _connect(address: str) -> socket.socket:
    give_up = time.monotonic() + START_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=1)
        except OSError:  # the receiver is still starting
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def main() -> None:
    """Do what the command line says; a receiver prints what it has seen."""
    what, address, seconds, flows = sys.argv[1:]
    if what == "receive":
        print(json.dumps(receive(address, float(seconds), int(flows))))
    else:
        send(address, float(seconds))


if __name__ == "__main__":
    main()
