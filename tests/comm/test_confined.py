"""A process that we started listens on all addresses: only this machine's loopback reaches it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from volary.comm.groups import confined

LISTENS = """
import socket, sys
plugs = [socket.create_server(("0.0.0.0", 0)),
         socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)]
print(*(sock.getsockname()[1] for sock in plugs), flush=True)
sys.stdin.read()
"""


@contextmanager
def listening() -> Iterator[tuple[int, list[int]]]:
    command = [sys.executable, "-c", LISTENS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ports = [int(port) for port in process.stdout.readline().split()]
        assert len(ports) == 2
        yield process.pid, ports
        process.communicate("")


def reaches(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=0.5).close()
    except TimeoutError:
        return False
    return True


def own_address() -> str:
    """An address of this machine that is not loopback."""
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                return str(entry.address)
    pytest.skip("this machine has no address but loopback")


@pytest.fixture(autouse=True)
def _possible() -> None:
    if reason := confined.why_not():
        pytest.skip(f"the system does not lend sockets: {reason}")


def test_sockets_that_listen_on_all_addresses_are_reached_from_loopback_alone():
    address = own_address()
    with listening() as (pid, ports):
        assert all(reaches(address, port) for port in ports)
        confined.Confined(pid).look()
        assert not any(reaches(address, port) for port in ports)
        assert all(reaches("127.0.0.1", port) for port in ports)
        assert reaches("::1", ports[1])


def test_process_that_has_gone_is_looked_at_in_vain():
    with listening() as (pid, _):
        sockets = confined.Confined(pid)
    sockets.look()
