"""A gate beside a run, and a relay between: who has the key reaches the run's processes, and nobody else anything."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import msgspec
import pytest
import torch

from _workers import joined
from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost, KeyRefused
from volary.comm.control.handshake import key_of
from volary.comm.control.server import KeyedServer
from volary.comm.groups import gloo, mesh
from volary.comm.groups.blocking import gather
from volary.comm.relay import forwarder
from volary.comm.relay.forwarder import Forwarder
from volary.comm.relay.gate import Gate
from volary.comm.relay.messages import ANSWER, HOST, virtual_address
from volary.comm.relay.relay import Relay
from volary.run.launch.invitation import SERVICE as INVITATION
from volary.run.launch.way import GUEST, Way

KEY, RELAY_KEY = b"the key of this test run, 32 b..", bytes(range(32))
NAME = "ab" * 16
HERE, WITHIN_S = "127.0.0.1", 60.0


@contextmanager
def echo() -> Iterator[tuple[tuple[str, int], list[tuple[str, int]]]]:
    """A program that sends back all that it hears, reversed, once it has heard all; its address, and who came."""
    came: list[tuple[str, int]] = []
    with socket.create_server((HERE, 0)) as listener:

        def run() -> None:
            while True:
                try:
                    sock, address = listener.accept()
                except OSError:
                    return
                came.append(address)
                with sock:
                    sock.sendall(all_of(sock)[::-1])

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname(), came
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WITHIN_S)


def all_of(sock: socket.socket) -> bytes:
    found = b""
    while data := sock.recv(2**16):
        found += data
    return found


def answer(end: tuple[str, int], data: bytes) -> tuple[bytes, tuple[str, int]]:
    """The data that come back for those that are sent there, and the end here that they were sent from."""
    with socket.create_connection(end, timeout=WITHIN_S) as sock:
        here = sock.getsockname()
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return all_of(sock), here


@pytest.fixture(params=["a gate's port", "a relay between"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    """To a gate through which the machine 127.0.0.1 is reached; the run's server is at its port 9."""
    with ExitStack() as stack:
        gate = stack.enter_context(closing(Gate(KEY, lambda: (HERE, 9), lambda host: host == HERE, HERE)))
        gate.start()
        if request.param == "a gate's port":
            yield Way(*gate.address)
            return
        relay = stack.enter_context(closing(Relay(RELAY_KEY, HERE, 0)))
        relay.start()
        gate.meet(Way(*relay.address, NAME, RELAY_KEY))
        yield Way(*relay.address, NAME, key_of(RELAY_KEY, f"{GUEST}/{NAME}"))


def test_who_has_the_key_reaches_a_process_of_the_run_and_knows_how_that_sees_him(way):
    data = os.urandom(3_000_000)
    with echo() as (end, came), closing(Forwarder(way, KEY)) as through:
        there = through.to(end)
        assert there[0] == HERE
        assert there != end
        back, here = answer(there, data)
        assert back == data[::-1]
        answers = [answer(there, b"%d" % n)[0] for n in range(5)]
        assert answers == [b"%d" % n for n in range(5)]
        assert here not in came
        with socket.create_connection(there, timeout=WITHIN_S) as sock:
            seen = through.end_of(sock.getsockname(), there)
            sock.shutdown(socket.SHUT_WR)
            assert all_of(sock) == b""
            assert seen in came


def test_two_who_are_behind_the_gate_reach_each_other(way):
    one, other = Forwarder(way, KEY, host=virtual_address(3)), Forwarder(way, KEY, host=virtual_address(258))
    assert (one.host, other.host) == ("127.64.0.3", "127.64.1.2")
    with closing(one), closing(other), socket.create_server((other.host, 0)) as listener:
        one.be_called()
        other.be_called()
        assert HERE in one.gate_addresses
        there = one.to(listener.getsockname())
        with socket.create_connection(there, timeout=WITHIN_S) as sock:
            sock.sendall(b"from one")
            accepted, address = listener.accept()
            with accepted:
                assert accepted.recv(8) == b"from one"
                assert one.end_of(sock.getsockname(), there) == address
                accepted.sendall(b"from the other")
                accepted.shutdown(socket.SHUT_WR)
                assert all_of(sock) == b"from the other"


def test_nobody_reaches_what_is_not_of_the_run_or_gone_or_not_at_the_gate(way):
    with closing(Forwarder(way, KEY)) as through, socket.create_server((HERE, 0)) as free:
        closed = free.getsockname()
        free.close()
        for end, why in [
            (("127.0.0.2", 80), "127.0.0.2:80 is not of this run"),
            ((virtual_address(7), 80), "127.64.0.7 is not at this gate"),
            (closed, "nobody answers at"),
        ]:
            with pytest.raises(ConnectionLost, match=f"{way.address}: {why}"):
                through.require(end)
            with socket.create_connection(through.to(end), timeout=WITHIN_S) as sock:
                assert sock.recv(1) == b""
                with pytest.raises(ConnectionLost, match="did not bring"):
                    through.end_of(sock.getsockname(), sock.getpeername())


def test_other_keys_and_an_invitations_open_nothing_but_the_runs_server(way):
    service = f"{INVITATION}/0123456789abcdef.1.9"
    with echo() as (end, came), KeyedServer(KEY, {}) as server:
        for key, wanted in [(os.urandom(32), "gate"), (key_of(KEY, service), "gate"), (KEY, service)]:
            with closing(Forwarder(way, key, wanted)) as through, pytest.raises(KeyRefused):
                through.require(end)
        there = pytest.raises(ConnectionLost, match=r"nobody answers at 127\.0\.0\.1:9")  # and not at what is asked for
        with closing(Forwarder(way, key_of(KEY, service), service)) as through, there:
            through.require(end)
        assert server.refusals == {}
    assert came == []


def test_a_guests_key_opens_no_other_service_of_a_relay_and_no_other_gate():
    with closing(Relay(RELAY_KEY, HERE, 0)) as relay:
        relay.start()
        key = key_of(RELAY_KEY, f"{GUEST}/{NAME}")
        for service in (HOST, ANSWER, GUEST, f"{GUEST}/{NAME[::-1]}", f"{HOST}/{NAME}"):
            with pytest.raises(KeyRefused):
                Connection.open(*relay.address, key, service, {}, sealed=True)
        nobody = pytest.raises(ConnectionLost, match="no gate of the run is at the relay")
        with closing(Forwarder(Way(*relay.address, NAME, key), KEY)) as through, nobody:
            through.require((HERE, 9))


@pytest.mark.parametrize("way", ["a gate's port"], indirect=True)
def test_what_is_no_message_costs_only_who_has_sent_it(way):
    with echo() as (end, _), closing(Forwarder(way, KEY)) as through:
        for hello in (
            {},
            {"wish": "reach"},
            {"wish": "reach", "end": ["127.0.0.1", 70000]},
            {"wish": "listen", "host": 3},
        ):
            said = Connection.open(way.host, way.port, KEY, "gate", hello, sealed=True)
            with said, pytest.raises(ConnectionLost):
                said.receive(WITHIN_S)
        assert answer(through.to(end), b"ab")[0] == b"ba"


def test_a_forwarder_that_is_closed_ends_what_goes_through_it(way):
    with (
        echo() as (end, _),
        closing(Forwarder(way, KEY)) as through,
        socket.create_connection(through.to(end), timeout=WITHIN_S) as sock,
    ):
        sock.sendall(b"a")
        assert through.end_of(sock.getsockname(), sock.getpeername())
        through.close()
        assert sock.recv(1) == b""


def in_a_group(rank: int, world_size: int, way: Way, behind: list[int]) -> tuple[list[float], list[bytes]]:
    """All ranks' numbers, by a group's collective; what each said to all by a mesh.

    Those `behind` reach others by the gate alone.
    """
    if rank in behind:
        through = Forwarder(way, KEY, host=virtual_address(rank))
        through.be_called()
        forwarder.use(through)
        gloo.register(through.host)
    group = joined().divided([list(range(world_size))])
    everybody = gather(torch.full((1000,), float(rank)), group)
    made, said = mesh.of(group), []
    for other in range(world_size):
        if other != rank:
            made.send(memoryview(b"%d" % rank), other, 1)
    for other in range(world_size):
        if other != rank:
            memory = memoryview(bytearray(1))
            made.receive(memory, other, 1).wait()
            said.append(bytes(memory))
    group.bulletin.share("done", True)
    return everybody[:, -1].tolist(), said


def test_groups_and_meshes_stand_where_ranks_are_behind_a_gate(workers):
    with closing(Gate(KEY, lambda: (HERE, 9), lambda host: host == HERE, HERE)) as gate:
        gate.start()
        found = workers(3, in_a_group, Way(*gate.address), [0, 2])
    for rank, (numbers, said) in enumerate(found):
        assert numbers == [0.0, 1.0, 2.0]
        assert said == [b"%d" % other for other in range(3) if other != rank]


def test_a_way_as_text_is_read_as_it_was_written_and_garbage_is_not():
    one = Way("host", 7000, NAME, RELAY_KEY)
    assert Way.parse(str(one)) == one
    for text in ("", "x", str(one)[:-9], str(msgspec.structs.replace(one, port=0))):
        with pytest.raises(ValueError):
            Way.parse(text)
