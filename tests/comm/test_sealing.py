"""A sealed message opens once, in order, unchanged, with the right key; beyond loopback the keyed server seals all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volary.comm.control.connection import Connection
from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.comm.control.frames import HEADER_BYTES
from volary.comm.control.handshake import ClientSide, ServerSide
from volary.comm.control.sealing import TAG_BYTES, Seal, Security, encrypts, stays_here
from volary.comm.control.server import KeyedServer

from ._wiretap import Wiretap, beyond_loopback
from .conftest import KEY, Echo, Servers

SECRET = b"a sentence that nobody else should read"


def ends() -> tuple[Seal, Seal]:
    return Seal(bytes(32)), Seal(bytes(32))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=50)), max_size=6))
def test_what_is_sealed_opens_in_order(said: list[tuple[bytes, bytes]]) -> None:
    sender, receiver = ends()
    sealed = [sender.seal(data, known) for data, known in said]
    assert [receiver.open(one, known) for one, (_, known) in zip(sealed, said, strict=True)] == [d for d, _ in said]


@settings(max_examples=40)
@given(st.binary(min_size=1, max_size=100), st.data())
def test_a_flipped_bit_does_not_open(data: bytes, drawn: st.DataObject) -> None:
    sender, receiver = ends()
    sealed = bytearray(sender.seal(data))
    bit = drawn.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(BadFrame, match="changed on the way"):
        receiver.open(sealed)


@settings(max_examples=40)
@given(st.binary(max_size=64))
def test_random_bytes_do_not_open(data: bytes) -> None:
    with pytest.raises(BadFrame):
        ends()[1].open(data)


def test_what_was_opened_does_not_open_again_and_what_is_left_out_is_missed() -> None:
    sender, receiver = ends()
    first, second, third = (sender.seal(b"%d" % number) for number in range(3))
    receiver.open(first)
    with pytest.raises(BadFrame):
        receiver.open(first)
    sender, receiver = ends()
    receiver.open(sender.seal(b"0"))
    sender.seal(b"left out")
    with pytest.raises(BadFrame):
        receiver.open(third)
    assert second


def test_large_pieces_are_sealed_and_opened_in_memory_that_is_given() -> None:
    sender, receiver = ends()
    data, there = memoryview(bytearray(b"x" * 1000)), memoryview(bytearray(1000))
    sealed = memoryview(bytearray(1000 + TAG_BYTES))
    sender.seal_into(data, sealed)
    assert b"xxxx" not in bytes(sealed)
    receiver.open_into(sealed, there)
    assert there == data
    with pytest.raises(BadFrame):
        receiver.open_into(sealed, there)


def test_no_nonce_is_used_twice_whatever_threads_do() -> None:
    seal = Seal(bytes(32))
    with ThreadPoolExecutor(8) as pool:
        found = [nonce for some in pool.map(lambda _: [seal._nonce() for _ in range(5000)], range(8)) for nonce in some]
    assert len(set(found)) == 8 * 5000


@pytest.mark.parametrize(
    ("security", "address", "encrypted"),
    [
        ("encrypted", "127.0.0.1", False),
        ("encrypted", "192.0.2.2", True),
        ("authenticated", "192.0.2.2", False),
        ("always", "127.0.0.1", True),
    ],
)
def test_what_is_encrypted_by_setting_and_address(security: Security, address: str, encrypted: bool) -> None:
    assert encrypts(security, address) is encrypted


@pytest.mark.parametrize(
    ("address", "here"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.2", True), ("192.0.2.2", False), ("fe80::1%eth0", False)],
)
def test_what_stays_on_loopback_is_known(address: str, here: bool) -> None:
    assert stays_here(address) is here


@pytest.fixture
def outside() -> str:
    address = beyond_loopback()
    if address is None:
        pytest.skip("this machine has no address beyond loopback")
    return address


def test_beyond_loopback_nobody_on_the_way_reads_what_is_said(servers: Servers, outside: str) -> None:
    server = servers.start(host=outside)
    with Wiretap(server.address) as tap, Connection.open(*tap.address, KEY, "echo", {"hello": SECRET}) as client:
        client.receive(5)
        client.send(SECRET)
        assert client.receive(5) == SECRET
        client.send({"give": 2**20})
        assert len(client.receive(5)) == 2**20
    assert all(SECRET not in said and b"x" * 64 not in said for said in tap.heard)
    assert servers.echo.said[0][2] == {"hello": SECRET}


def test_on_loopback_the_keyed_server_speaks_in_the_clear(servers: Servers) -> None:
    server = servers.start()
    with Wiretap(server.address) as tap, Connection.open(*tap.address, KEY, "echo", {"hello": SECRET}) as client:
        client.receive(5)
    assert SECRET in tap.heard[0]


def test_a_server_whose_messages_are_always_encrypted_is_not_read_on_loopback_either() -> None:
    """As where a tunnel ends on loopback on both sides: the client need not know."""
    echo = Echo()
    with (
        KeyedServer(KEY, {"echo": echo}, security="always") as server,
        Wiretap(server.address) as tap,
        Connection.open(*tap.address, KEY, "echo", {"hello": SECRET}) as client,
    ):
        client.receive(5)
        client.send(SECRET)
        assert client.receive(5) == SECRET
    assert all(SECRET not in said for said in tap.heard)
    assert echo.said[0][2] == {"hello": SECRET}


@pytest.mark.parametrize("bit", [0, 7, 100, 8 * (20 + TAG_BYTES) - 1])
def test_whoever_changes_what_is_said_ends_that_connection_and_no_other(
    servers: Servers, outside: str, bit: int
) -> None:
    server = servers.start(host=outside)
    honest = servers.client(server)
    honest.receive(5)
    place = handshake_bytes() + HEADER_BYTES + bit // 8  # in the hello, behind its length

    def flip(at: int, data: bytes) -> bytes:
        changed = bytearray(data)
        if at <= place < at + len(data):
            changed[place - at] ^= 1 << bit % 8
        return bytes(changed)

    with Wiretap(server.address, flip) as tap:
        client = Connection.open(*tap.address, KEY, "echo", {"hello": "x" * 12})
        with client, pytest.raises(ConnectionLost):
            client.receive(5)
    honest.send("still here")
    assert honest.receive(5) == "still here"
    assert server.refusals[outside] == 1
    assert [name for name, *_ in servers.echo.said].count("opened") == 1


def handshake_bytes() -> int:
    """A client's bytes before its hello."""
    side = ClientSide(KEY, "echo", None, sealed=True)
    challenge, _ = ServerSide(KEY, "0" * 16, {"echo"}, sealed=True).receive(side.opening()[HEADER_BYTES:])
    return len(side.opening()) + len(side.answer(challenge[HEADER_BYTES:]))
