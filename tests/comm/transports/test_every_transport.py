"""Promises of all transports: messages arrive whole and in place, whoever has no key stays out, and ends are told."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from comm._wiretap import Wiretap, beyond_loopback
from comm.transports._pairs import OWN, WITHIN_S, anywhere, header, joined
from volary.comm.channels.channel import HEADER_BYTES, Payload
from volary.comm.control.errors import BadFrame, ConnectionLost, KeyRefused, OtherAttempt
from volary.comm.control.sealing import Security
from volary.comm.control.server import Limits
from volary.comm.transports import ROOM
from volary.errors import BadInput
from volary.server.protocol import header as headers

pytestmark = pytest.mark.parametrize("name", ROOM.names())
LARGE = 3_000_001


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "this has not become true in time"
        time.sleep(0.01)


def test_headers_are_those_of_the_server(name: str) -> None:
    assert headers.HEADER_BYTES == HEADER_BYTES


def test_both_sides_learn_who_the_other_is(name: str) -> None:
    with joined(name) as (client, server):
        assert client.peer == {"server": 3}
        assert server.peer == {"worker": 5}


def test_messages_arrive_in_order_with_their_bytes_in_place(name: str) -> None:
    place = memoryview(bytearray(5))
    with joined(name) as (client, server):
        client.send(header(0, 1))
        client.send(header(5, 2), memoryview(b"hello"))
        client.send(header(5, 3), memoryview(b"again"))
        assert server.receive(anywhere).header == header(0, 1)
        message = server.receive(lambda header: place)
        assert message.header == header(5, 2)
        assert message.payload is place
        assert place == b"hello"
        assert server.receive(anywhere).payload == b"again"


def test_what_is_said_with_more_to_come_travels_with_the_next(name: str) -> None:
    with joined(name) as (client, server):
        for last in (memoryview(b"hello"), None):
            client.send(header(0, 1), more=True)
            client.send(header(0, 2), more=True)
            with pytest.raises(TimeoutError):
                server.receive(anywhere, timeout_s=0.01)
            client.send(header(len(last or b""), 3), last)
            assert [server.receive(anywhere, WITHIN_S).header for _ in range(2)] == [header(0, 1), header(0, 2)]
            assert server.receive(anywhere, WITHIN_S).payload == last


def test_what_nobody_wants_is_read_past(name: str) -> None:
    with joined(name) as (client, server), ThreadPoolExecutor() as pool:
        pool.submit(client.send, header(LARGE, 1), memoryview(bytes(LARGE)))
        assert server.receive(lambda header: None, WITHIN_S).payload is None
        client.send(header(1, 2), memoryview(b"x"))
        assert server.receive(anywhere, WITHIN_S).payload == b"x"


def test_both_sides_send_at_once_more_than_any_buffer_holds(name: str) -> None:
    with joined(name) as (client, server), ThreadPoolExecutor() as pool:
        for end, mark in ((client, b"c"), (server, b"s")):
            pool.submit(end.send, header(LARGE), memoryview(mark * LARGE))
        there = pool.submit(server.receive, anywhere, WITHIN_S)
        assert client.receive(anywhere, WITHIN_S).payload == b"s" * LARGE
        assert there.result().payload == b"c" * LARGE


def test_memory_of_the_channel_is_writable_and_arrives(name: str) -> None:
    with joined(name) as (client, server):
        memory, sent = client.memory(LARGE), threading.Event()
        assert memory == bytes(LARGE)
        memory[-3:] = b"end"
        client.send(header(3), memory[-3:], sent.set)
        message = server.receive(anywhere, WITHIN_S)
        assert message.payload == b"end"
        message.release()
        message.release()
        server.send(header(0))
        client.receive(anywhere, WITHIN_S)
        assert sent.wait(WITHIN_S)


def test_bytes_are_counted(name: str) -> None:
    with joined(name) as (client, server):
        client.send(header(1000), memoryview(bytes(1000)))
        server.receive(anywhere, WITHIN_S)
        assert 1000 < client.sent_bytes == server.received_bytes < 1200


def test_a_wait_that_is_over_leaves_the_channel_good(name: str) -> None:
    with joined(name) as (client, server):
        with pytest.raises(TimeoutError, match=r"nothing from 127\.0\.0\.1"):
            server.receive(anywhere, timeout_s=0.01)
        client.send(header(1), memoryview(b"x"))
        assert server.receive(anywhere, WITHIN_S).payload == b"x"


def test_a_header_without_sense_takes_no_memory_and_ends_the_channel(name: str) -> None:
    def refuse(header: bytes) -> Payload | None:
        raise BadFrame("no sense")

    with joined(name) as (client, server):
        client.send(header(2**63))
        with pytest.raises(BadFrame, match="no sense"):
            server.receive(refuse, WITHIN_S)
        with pytest.raises(ConnectionLost):
            client.receive(anywhere, WITHIN_S)
        with pytest.raises(ConnectionLost, match="closed on this side"):
            server.receive(anywhere, WITHIN_S)


@pytest.mark.parametrize("mine", [True, False])
def test_closing_wakes_whoever_waits_on_either_side(name: str, mine: bool) -> None:
    with joined(name) as (client, server):
        woken: list[str] = []

        def wait() -> None:
            try:
                server.receive(anywhere)
            except ConnectionLost as problem:
                woken.append(str(problem))

        thread = threading.Thread(target=wait)
        thread.start()
        (server if mine else client).close()
        thread.join(WITHIN_S)
        assert woken
        with pytest.raises(ConnectionLost):
            (server if mine else client).send(header(0))


def test_closing_wakes_whoever_sends_to_one_that_does_not_read(name: str) -> None:
    with joined(name) as (client, _):
        ended = threading.Event()

        def send() -> None:
            with pytest.raises(ConnectionLost):
                while True:
                    client.send(header(LARGE), memoryview(bytes(LARGE)))
            ended.set()

        thread = threading.Thread(target=send)
        thread.start()
        until(lambda: client.sent_bytes > 0 or thread.is_alive())
        client.close()
        thread.join(WITHIN_S)
        assert ended.is_set()


def test_who_has_another_key_is_refused_and_counted_and_others_go_on(name: str) -> None:
    transport = ROOM.load(name)()
    with joined(name) as (client, server):
        door = transport.listen("127.0.0.1", OWN, lambda channel: channel.close())
        try:
            with pytest.raises(KeyRefused, match="not the run's key"):
                transport.connect(door.address, replace(OWN, key=secrets.token_bytes(32)), {}, WITHIN_S)
            until(lambda: door.refusals["127.0.0.1"] == 1)
        finally:
            door.close()
        client.send(header(0))
        server.receive(anywhere, WITHIN_S)


def test_a_key_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="accepted: 32 random bytes"):
        ROOM.load(name)().listen("127.0.0.1", replace(OWN, key=b"short"), lambda channel: None)


def test_another_server_and_another_life_that_answer_at_an_address_are_refused(name: str) -> None:
    transport = ROOM.load(name)()
    accepted: list[object] = []
    door = transport.listen("127.0.0.1", OWN, accepted.append)
    try:
        with pytest.raises(KeyRefused, match="no service 'server 0': another one was wanted"):
            transport.connect(door.address, replace(OWN, server=0), {}, WITHIN_S)
        with pytest.raises(OtherAttempt, match="of restart attempt now, this process of restart attempt earlier"):
            transport.connect(door.address, replace(OWN, attempt_id="earlier"), {}, WITHIN_S)
    finally:
        door.close()
    assert not accepted


def test_nobody_there_is_said(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    with pytest.raises(ConnectionLost, match=r"nobody answers at 127\.0\.0\.1"):
        ROOM.load(name)().connect(address, OWN, {}, 0.2)


def test_something_else_that_listens_is_not_taken_for_a_peer(name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def talk() -> None:
            sock, _ = other.accept()
            sock.sendall(b"\0\0\0\x05hello")
            while sock.recv(1000):
                pass
            sock.close()

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(KeyRefused, match="is not of this run"):
            ROOM.load(name)().connect(other.getsockname(), OWN, {}, WITHIN_S)
        thread.join()


def test_a_crowd_of_strangers_keeps_nobody_out(name: str) -> None:
    transport = ROOM.load(name)()
    door = transport.listen("127.0.0.1", OWN, lambda channel: channel.close())
    strangers = [socket.create_connection(door.address) for _ in range(Limits().strangers + 5)]
    try:
        until(lambda: door.refusals["127.0.0.1"] >= 5)
        client = transport.connect(door.address, OWN, {}, WITHIN_S)
        with pytest.raises(ConnectionLost, match="closed the connection"):
            client.receive(anywhere, WITHIN_S)
    finally:
        for sock in strangers:
            sock.close()
        door.close()


@pytest.mark.parametrize(
    ("mine", "theirs", "where"),
    [
        ("encrypted", "encrypted", "beyond loopback"),
        ("authenticated", "encrypted", "beyond loopback"),
        ("encrypted", "authenticated", "beyond loopback"),
        ("always", "encrypted", "on loopback"),
        ("encrypted", "always", "on loopback"),
    ],
)
def test_nobody_on_the_way_reads_headers_or_payloads_if_one_side_wants_that(
    name: str, mine: Security, theirs: Security, where: str
) -> None:
    host = beyond_loopback() if where == "beyond loopback" else "127.0.0.1"
    if host is None:
        pytest.skip("this machine has no address beyond loopback")
    secret = b"values that nobody else should see"
    here: list[bytes] = []
    heard = threading.Event()

    def accepted(channel: object) -> None:
        message = channel.receive(anywhere, WITHIN_S)  # type: ignore[attr-defined]
        here.append(bytes(message.payload))
        heard.set()
        channel.close()  # type: ignore[attr-defined]

    door = ROOM.load(name)().listen(host, replace(OWN, security=theirs), accepted)
    try:
        with Wiretap(door.address) as tap:
            wanted = replace(OWN, security=mine)
            client = ROOM.load(name)().connect(tap.address, wanted, {"hello": secret.decode()}, WITHIN_S)
            client.send(header(len(secret), 0x41), memoryview(secret))
            assert heard.wait(WITHIN_S)
            client.close()
    finally:
        door.close()
    assert here == [secret]
    assert all(secret not in said and b"A" * 10 not in said for said in tap.heard)
