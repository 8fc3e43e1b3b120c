"""How a connection answers loss is chosen by the way that it goes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from torch import distributed

from _workers import joined
from volary.comm.channels import congestion
from volary.comm.groups import gloo, listening_sockets

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def control_of(connected: socket.socket) -> str:
    return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


@pytest.fixture
def connected():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as made:
        yield made


@pytest.fixture
def far(monkeypatch):
    if not AVAILABLE.exists() or "bbr" not in AVAILABLE.read_text().split():
        pytest.skip("this kernel has no bbr")
    monkeypatch.setattr(congestion, "FAR_S", 0.0)


def test_on_a_long_way_loss_is_not_taken_for_congestion(connected, far):
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    congestion.suit(connected, "192.0.2.1")
    assert control_of(connected) == "bbr"


def test_on_a_short_way_a_connection_stays_as_the_machine_has_it(connected):
    before = control_of(connected)
    congestion.suit(connected, "192.0.2.1")
    assert control_of(connected) == before


def test_within_the_machine_nothing_is_paced(connected):
    congestion.suit(connected, "127.0.0.1")
    assert control_of(connected) == "reno"


def test_where_the_kernel_lacks_it_a_connection_stays_as_it_is(connected, monkeypatch):
    before = control_of(connected)
    monkeypatch.setattr(congestion, "FAR_S", 0.0)
    monkeypatch.setattr(congestion, "FAR", b"nobody has it")
    congestion.suit(connected, "192.0.2.1")
    assert control_of(connected) == before


def controls(rank: int, world_size: int) -> set[str]:
    distributed.barrier(group=joined().process_group)
    found = set()
    for inode, descriptor in listening_sockets.sockets().items():
        if inode in set().union(*gloo._meshes):
            with socket.socket(fileno=os.dup(descriptor)) as twin:
                found.add(control_of(twin))
    return found


def test_connections_of_gloo_are_suited_too(workers):
    assert workers(2, controls) == [{"reno"}, {"reno"}]
