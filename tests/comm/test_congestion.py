"""How a connection answers loss is chosen by the way that it goes."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from torch import distributed

from _workers import joined
from comm.conftest import KEY
from volary.comm.control import congestion
from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.comm.control.store import KeyedStore
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


def test_on_a_long_way_a_lost_packet_is_sent_again_once_its_answer_is_late(connected, far):
    option, least_ms = congestion._LEAST_RETRANSMISSION, 200
    try:
        connected.getsockopt(socket.IPPROTO_TCP, option)
    except OSError:
        pytest.skip("this kernel does not let a connection say so")
    congestion.suit(connected, "192.0.2.1")
    assert connected.getsockopt(socket.IPPROTO_TCP, option) < 1000 * least_ms / 2


def test_connections_of_the_run_s_server_are_suited_at_both_ends(connected, far, monkeypatch):
    suited = []
    monkeypatch.setattr(congestion, "suit", lambda sock, address: suited.append((sock.getsockname(), address)))
    with KeyedServer(KEY, {"board": Board()}) as server:
        store = KeyedStore.at(*server.address, KEY)
        store.set("a", "1")
        store.close()
        assert [address for _, address in suited] == ["127.0.0.1", "127.0.0.1"]
        assert server.address in [end for end, _ in suited]


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
