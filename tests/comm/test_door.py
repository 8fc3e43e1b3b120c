"""What the room costs to look at, and which sockets it can see."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from volary.comm import filter as ear
from volary.comm.listeners import Listener, listeners

LIGHT = ["errors", "frames", "handshake", "wire", "service", "peer", "server", "board", "listeners", "filter"]


def test_all_that_the_driver_needs_of_the_room_imports_neither_torch_nor_numpy() -> None:
    names = ", ".join(f"volary.comm.{name}" for name in LIGHT)
    look = (
        f"import sys, volary.comm, {names}; print(*sorted({{'torch', 'numpy', 'psutil', 'rich'}} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.strip() == ""


def test_listening_sockets_of_a_process_are_listed_with_where_they_can_be_reached_from() -> None:
    with socket.create_server(("127.0.0.1", 0)) as near, socket.create_server(("0.0.0.0", 0)) as far:
        found = [one for one in listeners([os.getpid()]) if one.port in (near.getsockname()[1], far.getsockname()[1])]
    assert [(one.address, one.pid, one.beyond_loopback) for one in found] == [
        ("0.0.0.0", os.getpid(), True),
        ("127.0.0.1", os.getpid(), False),
    ]


def test_a_process_that_has_gone_has_no_sockets() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    assert listeners([ended.pid]) == []


@pytest.mark.parametrize(
    ("address", "beyond"),
    [
        *[(near, False) for near in ("127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1")],
        *[(far, True) for far in ("::", "0.0.0.0", "10.0.0.1", "::ffff:10.0.0.1")],
    ],
)
def test_what_lies_beyond_loopback(address: str, beyond: bool) -> None:
    assert Listener(1, address, 1).beyond_loopback is beyond


linux = pytest.mark.skipif(bool(ear.why_not()), reason=ear.why_not() or "-")


@linux
def test_an_ear_hears_only_whom_it_admits_and_at_last_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ear.admit_only(listener.fileno(), ["10.1.2.3"])
        assert not reaches(listener)
        ear.admit_only(listener.fileno(), ["10.1.2.3", "127.0.0.1"])
        assert reaches(listener)
        listener.accept()[0].close()
        stays = socket.create_connection(listener.getsockname(), timeout=5)
        theirs, _ = listener.accept()
        ear.admit_nobody(listener.fileno())
        assert not reaches(listener)
        with stays, theirs:  # what stands goes on
            stays.sendall(b"still here")
            assert theirs.recv(100) == b"still here"
        with pytest.raises(OSError, match="not permitted"):
            ear.admit_only(listener.fileno(), ["127.0.0.1"])


@linux
def test_what_cannot_be_told_by_address_is_admitted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ear.admit_only(listener.fileno(), ())
        ear.admit_only(listener.fileno(), ["::1"])
        assert reaches(listener)
    assert "admit every address" in caplog.text


@linux
def test_our_listening_sockets_are_found_among_all_descriptors() -> None:
    before = ear.listening()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as idle:
        [descriptor] = [ear.listening()[inode] for inode in ear.listening().keys() - before.keys()]
        assert descriptor == listener.fileno()
        assert ear.ends(descriptor) == [listener.getsockname()]
        assert idle.fileno() in ear.sockets().values()


def reaches(listener: socket.socket) -> bool:
    try:
        socket.create_connection(listener.getsockname(), timeout=0.3).close()
    except TimeoutError:
        return False
    return True
