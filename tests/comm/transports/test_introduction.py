"""Handshakes with a side that is gone: an end of the connection like any other."""

from __future__ import annotations

import select
import socket
import struct
import time

import pytest

from comm.transports._pairs import OWN, WITHIN_S
from volary.comm.channels.introduction import Introduction, ask
from volary.comm.control.errors import ConnectionLost


def test_side_that_dies_before_a_word_was_said_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as sock:
        other, _ = door.accept()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes as who is killed
        other.close()
        gone = select.poll()
        gone.register(sock, select.POLLHUP)
        assert gone.poll(WITHIN_S * 1000)
        with pytest.raises(ConnectionLost):
            ask(sock, OWN, Introduction({}, ""), time.monotonic() + WITHIN_S)
