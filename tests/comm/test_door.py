"""The room costs little to look at, and sees only certain sockets."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from volary.comm.groups import listening_sockets
from volary.comm.groups.listeners import ListeningSocket, listeners

CONTROL = ["errors", "frames", "handshake", "connection", "service", "peer", "server", "board"]
LIGHT = [*(f"control.{name}" for name in CONTROL), "groups.listeners", "groups.listening_sockets"]


def test_all_that_the_driver_needs_of_the_room_imports_neither_torch_nor_numpy() -> None:
    names = ", ".join(f"volary.comm.{name}" for name in LIGHT)
    look = (
        f"import sys, volary.comm, {names}; print(*sorted({{'torch', 'numpy', 'psutil', 'rich'}} & sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=300, check=True)
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
    ended.wait(300)
    assert listeners([ended.pid]) == []


@pytest.mark.parametrize(
    ("address", "beyond"),
    [
        *[(near, False) for near in ("127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1")],
        *[(far, True) for far in ("::", "0.0.0.0", "10.0.0.1", "::ffff:10.0.0.1")],
    ],
)
def test_what_lies_beyond_loopback(address: str, beyond: bool) -> None:
    assert ListeningSocket(1, address, 1).beyond_loopback is beyond


linux = pytest.mark.skipif(bool(listening_sockets.why_not()), reason=listening_sockets.why_not() or "-")
filtering = pytest.mark.skipif(
    bool(listening_sockets.why_no_filter()), reason=f"no filters: {listening_sockets.why_no_filter()}"
)


@linux
@filtering
def test_a_listening_socket_hears_only_whom_it_admits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening_sockets.admit_only(listener.fileno(), ["10.1.2.3"])
        assert not reaches(listener.getsockname())
        listening_sockets.admit_only(listener.fileno(), ["10.1.2.3", "127.0.0.1"])
        assert reaches(listener.getsockname())


@linux
@filtering
def test_what_cannot_be_told_by_address_is_admitted_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening_sockets.admit_only(listener.fileno(), ())
        listening_sockets.admit_only(listener.fileno(), ["::1"])
        assert reaches(listener.getsockname())
    assert "admit every address" in caplog.text


@pytest.fixture
def library() -> Iterator[tuple[socket.socket, select.epoll]]:
    """A listening socket as a library keeps it: it does not block, and an epoll waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as waiter:
        listener.setblocking(False)
        waiter.register(listener.fileno(), select.EPOLLIN)
        yield listener, waiter


@linux
def test_a_closed_ear_hears_nobody_and_what_stands_goes_on(library: tuple[socket.socket, select.epoll]) -> None:
    listener, _ = library
    address = listener.getsockname()
    with socket.create_connection(address, timeout=5) as here, listener.accept()[0] as there:
        with socket.create_connection(address, timeout=5):  # that nobody has accepted yet
            assert listening_sockets.close(listener.fileno())
        assert not reaches(address)
        here.sendall(b"still here")
        assert there.recv(100) == b"still here"


@linux
def test_a_library_whose_ear_was_closed_is_never_woken_and_may_accept_and_leave_as_before(
    library: tuple[socket.socket, select.epoll],
) -> None:
    listener, waiter = library
    address = listener.getsockname()
    stays = os.dup(listener.fileno())  # as a child has it that was forked meanwhile
    try:
        assert listening_sockets.close(listener.fileno())
        assert not reaches(address)
        assert waiter.poll(0.1) == []  # on the contrary, a socket that was only shut down would wake it for ever
        with pytest.raises(BlockingIOError):
            listener.accept()
        waiter.unregister(listener.fileno())
    finally:
        os.close(stays)


@linux
def test_a_listening_socket_that_nobody_waits_for_is_left_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll():
        assert not listening_sockets.close(listener.fileno())
        assert reaches(listener.getsockname())


@linux
def test_our_listening_sockets_are_found_among_all_descriptors() -> None:
    before = listening_sockets.listening()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as idle:
        [descriptor] = [
            listening_sockets.listening()[inode] for inode in listening_sockets.listening().keys() - before.keys()
        ]
        assert descriptor == listener.fileno()
        assert listening_sockets.ends(descriptor) == [listener.getsockname()]
        assert idle.fileno() in listening_sockets.sockets().values()


def reaches(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=0.3).close()
    except (TimeoutError, ConnectionRefusedError):
        return False
    return True
