"""The server over real sockets: who gets in, who does not, and that nobody can disturb those who are in."""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from volary.comm.control.connection import Connection
from volary.comm.control.errors import ConnectionLost, KeyRefused, OtherAttempt
from volary.comm.control.frames import encode
from volary.comm.control.handshake import VERSION, ClientSide, Opening
from volary.comm.control.server import KeyedServer
from volary.errors import BadInput

from .conftest import KEY, Servers

WITHIN_S = 60.0  # on a busy machine, too


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline, "this has not become true in time"
        time.sleep(0.01)


def stranger(server: KeyedServer, data: bytes = b"") -> socket.socket:
    sock = socket.create_connection(server.address, timeout=WITHIN_S)
    sock.sendall(data)
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Whether the server ends this connection in time; what it says before does not matter."""
    try:
        while sock.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


def works(client: Connection) -> bool:
    client.send("are you there")
    return bool(client.receive(WITHIN_S) == "are you there")


def test_a_client_is_introduced_heard_answered_and_seen_off(servers: Servers) -> None:
    server = servers.start(attempt_id="first")
    client = servers.client(server, rank=3)
    assert client.attempt_id == "first"
    [me] = client.receive(WITHIN_S).values()
    client.send({"bytes": b"\x00\xff", "list": [1, 2.5, None]})
    assert client.receive(WITHIN_S) == {"bytes": b"\x00\xff", "list": [1, 2.5, None]}
    client.close()
    until(lambda: len(servers.echo.said) == 3)
    assert [(what, peer) for what, peer, _ in servers.echo.said] == [("opened", me), ("received", me), ("closed", me)]
    assert servers.echo.said[0][2] == {"rank": 3}
    assert not server.refusals


def test_frames_of_megabytes_pass_both_ways(servers: Servers) -> None:
    client = servers.client(servers.start())
    client.receive(WITHIN_S)
    big = bytes(range(256)) * 2**15  # 8 MiB
    client.send(big)
    assert client.receive(WITHIN_S) == big


def test_a_wrong_key_is_refused_counted_by_address_and_logged_once(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.start()
    with caplog.at_level(logging.WARNING, logger="volary.comm"):
        for _ in range(3):
            with pytest.raises(KeyRefused, match="not the run's key"):
                Connection.open(*server.address, secrets.token_bytes(32), "echo", {}, timeout_s=WITHIN_S)
    until(lambda: server.refusals["127.0.0.1"] == 3)
    assert [r.getMessage() for r in caplog.records] == ["turned away 127.0.0.1: wrong proof of the key (said once)"]
    assert servers.echo.said == []


def test_a_client_of_another_life_is_refused_by_that_name(servers: Servers) -> None:
    server = servers.start(attempt_id="second")
    with pytest.raises(OtherAttempt, match="of restart attempt second"):
        Connection.open(*server.address, KEY, "echo", {}, attempt_id="first", timeout_s=WITHIN_S)
    assert servers.echo.said == []


def test_a_service_that_is_not_carried_is_named(servers: Servers) -> None:
    with pytest.raises(KeyRefused, match="no service 'page'"):
        Connection.open(*servers.start().address, KEY, "page", {}, timeout_s=WITHIN_S)


def test_a_replayed_proof_opens_nothing(servers: Servers) -> None:
    server = servers.start()
    side = ClientSide(KEY, "echo", None, sealed=False)
    with stranger(server, side.opening()) as first:
        recorded = side.answer(_body(first))
    with stranger(server, side.opening()) as second:
        _body(second)
        second.sendall(recorded + encode({}))
        assert is_closed(second)
    until(lambda: server.refusals["127.0.0.1"] == 2)
    assert servers.echo.said == []


def _body(sock: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        data += sock.recv(4096)
    return data[4:]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # a TLS hello
        b"\xff\xff\xff\xff",
        (8 * 2**30 % 2**32 + 4097).to_bytes(4, "big") + b"x" * 100,
        (4097).to_bytes(4, "big"),
        (5).to_bytes(4, "big") + b"\xdd\xff\xff\xff\xff",  # a list of 2^32 - 1 things
        (4000).to_bytes(4, "big") + b"\x91" * 4000,  # a list in a list in a list ...
        (0).to_bytes(4, "big"),
        encode({"version": 1, "service": "echo", "nonce": b"short", "attempt_id": None}),
        encode({"hello": "world"}),
        bytes(range(1, 256)) * 100,
    ],
    ids=["http", "tls", "4GiB", "4097+", "4097", "false list", "deep list", "empty", "no nonce", "no opening", "bytes"],
)
def test_garbage_is_dropped_at_once_and_those_who_are_in_go_on(servers: Servers, data: bytes) -> None:
    server = servers.start(handshake_s=10 * WITHIN_S)  # which is not what ends it
    client = servers.client(server)
    client.receive(WITHIN_S)
    with stranger(server, data) as sock:
        assert is_closed(sock)
    until(lambda: server.refusals["127.0.0.1"] == 1)
    assert works(client)


@pytest.mark.parametrize(
    "said",
    [b"", b"\x00\x00", encode(Opening(VERSION, "echo", None, False, b"n" * 32, b"s" * 32))],
    ids=["nothing", "half a length", "only an opening"],
)
def test_who_proves_nothing_in_time_is_closed(servers: Servers, said: bytes) -> None:
    server = servers.start(handshake_s=0.3, tick_s=0.05)
    started = time.monotonic()
    with stranger(server, said) as sock:
        assert is_closed(sock)
    assert 0.25 < time.monotonic() - started < WITHIN_S
    until(lambda: server.refusals["127.0.0.1"] == 1)


def test_who_leaves_before_it_has_proved_anything_is_counted_and_not_told_of(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.start()
    with caplog.at_level(logging.WARNING, logger="volary.comm"):
        stranger(server, b"\x00\x00").close()  # as a worker does that is ended while it starts
        until(lambda: server.refusals["127.0.0.1"] == 1)
    assert not caplog.records


def test_one_stranger_too_many_costs_the_oldest_stranger_its_place(servers: Servers) -> None:
    server = servers.start(strangers=4, handshake_s=60)
    client = servers.client(server)
    client.receive(WITHIN_S)
    idle = [stranger(server) for _ in range(10)]
    until(lambda: server.refusals["127.0.0.1"] == 6)
    assert all(is_closed(sock) for sock in idle[:6])
    assert works(client)
    assert works_anew(servers, server)  # a client of ours still gets in
    for sock in idle:
        sock.close()


def test_a_hundred_workers_that_come_at_once_are_all_let_in(servers: Servers) -> None:
    server = servers.start(handshake_s=60)
    first = [stranger(server) for _ in range(100)]
    assert works_anew(servers, server)  # so the others have been accepted
    assert not server.refusals
    for sock in first:
        sock.close()


def proved(server: KeyedServer) -> Connection:
    """Who has proved the key and has yet to say hello."""
    side, deadline = ClientSide(KEY, "echo", None, sealed=False), time.monotonic() + WITHIN_S
    one = Connection(socket.create_connection(server.address), "it", WITHIN_S)
    one._write(side.opening(), deadline)
    one._write(side.answer(one._frame(deadline)), deadline)
    side.judge(one._frame(deadline))
    one._trust(side)
    return one


def test_who_has_proved_the_key_keeps_its_place_however_many_come_at_once(servers: Servers) -> None:
    server = servers.start(strangers=2, handshake_s=60)
    came = [proved(server) for _ in range(5)]
    idle = [stranger(server) for _ in range(3)]
    until(lambda: server.refusals["127.0.0.1"] == 1)
    for one in came:
        one.send({})
        assert "you" in one.receive(WITHIN_S)
    for sock in (*idle, *came):
        sock.close()


def works_anew(servers: Servers, server: KeyedServer) -> bool:
    client = servers.client(server)
    return "you" in client.receive(WITHIN_S)


def test_a_peer_that_does_not_read_is_dropped_and_the_others_go_on(servers: Servers) -> None:
    server = servers.start(output_bytes=2**20)
    lazy, brisk = servers.client(server), servers.client(server)
    lazy.receive(WITHIN_S)
    brisk.receive(WITHIN_S)
    with contextlib.suppress(ConnectionLost):  # it may be dropped while it still asks
        for _ in range(3):
            lazy.send({"give": 8 * 2**20})
    until(lambda: any(what == "closed" for what, _, _ in servers.echo.said))
    assert works(brisk)
    with pytest.raises(ConnectionLost):
        while True:
            lazy.receive(WITHIN_S)


def test_a_slow_reader_below_the_bound_gets_everything(servers: Servers) -> None:
    client = servers.client(servers.start())
    client.receive(WITHIN_S)
    for _ in range(5):
        client.send({"give": 4 * 2**20})
    assert [len(client.receive(WITHIN_S)) for _ in range(5)] == [4 * 2**20] * 5


def test_another_thread_may_post_and_call(servers: Servers) -> None:
    server = servers.start(tick_s=60)  # only the wake-up can bring it
    client = servers.client(server)
    [me] = client.receive(WITHIN_S).values()
    poster = threading.Thread(target=lambda: [server.post(me, n) for n in range(100)])
    poster.start()
    assert [client.receive(WITHIN_S) for _ in range(100)] == [*range(100)]
    poster.join()
    server.call_soon(lambda: [(me, threading.current_thread().name)])
    assert client.receive(WITHIN_S) == "volary-server"
    server.post(10**6, "nobody")
    assert works(client)


def test_close_sends_what_was_said_before_it(servers: Servers) -> None:
    client = servers.client(servers.start())
    client.receive(WITHIN_S)
    client.send("leave")
    assert client.receive(WITHIN_S) == "bye"
    with pytest.raises(ConnectionLost):
        client.receive(WITHIN_S)


@pytest.mark.parametrize("word", ["nonsense", "bug"])
def test_a_message_that_a_service_cannot_take_costs_only_its_sender(servers: Servers, word: str) -> None:
    server = servers.start()
    bad, good = servers.client(server), servers.client(server)
    for client in (bad, good):
        client.receive(WITHIN_S)
    bad.send(word)
    with pytest.raises(ConnectionLost, match="closed the connection"):
        bad.receive(WITHIN_S)
    assert works(good)
    assert server.refusals["127.0.0.1"] == 1


def test_a_service_that_fails_on_one_message_again_and_again_says_so_once(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    server = servers.start()
    for _ in range(3):
        client = servers.client(server)
        client.receive(WITHIN_S)
        client.send("bug")
        with pytest.raises(ConnectionLost):
            client.receive(WITHIN_S)
    assert [one.getMessage() for one in caplog.records if one.exc_info] == [
        "a service failed on a message of 127.0.0.1: RuntimeError: a bug in the service (said once)"
    ]


def test_a_stop_delivers_what_was_posted_and_ends_thread_and_socket(servers: Servers) -> None:
    server = servers.start()
    client = servers.client(server)
    [me] = client.receive(WITHIN_S).values()
    address = server.address
    server.post(me, b"x" * 2**22)
    server.post(me, "the end")
    stopper = threading.Thread(target=server.stop)
    stopper.start()
    assert len(client.receive(WITHIN_S)) == 2**22
    assert client.receive(WITHIN_S) == "the end"
    with pytest.raises(ConnectionLost):
        client.receive(WITHIN_S)
    stopper.join()
    assert not [t for t in threading.enumerate() if t.name == "volary-server"]
    with pytest.raises(ConnectionLost, match="no server listens at"):
        Connection.open(*address, KEY, "echo", {}, timeout_s=WITHIN_S)
    server.stop()


def test_a_stop_ends_though_a_peer_reads_nothing(servers: Servers) -> None:
    server = servers.start(linger_s=0.1)
    client = servers.client(server)
    [me] = client.receive(WITHIN_S).values()
    server.post(me, b"x" * 2**25)  # more than the system takes
    server.stop()
    with pytest.raises(ConnectionLost):
        client.receive(WITHIN_S)


def test_a_receive_without_a_message_ends_in_its_time_and_the_connection_stays_good(servers: Servers) -> None:
    client = servers.client(servers.start())
    client.receive(WITHIN_S)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        client.receive(0.2)
    assert 0.15 < time.monotonic() - started < WITHIN_S
    assert works(client)


def test_closing_wakes_a_receive_in_another_thread(servers: Servers) -> None:
    client = servers.client(servers.start())
    client.receive(WITHIN_S)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            client.receive(60)
        except ConnectionLost as problem:
            raised.append(problem)

    waiter = threading.Thread(target=wait)
    waiter.start()
    client.close()
    waiter.join(WITHIN_S)
    assert len(raised) == 1


def test_a_server_that_is_none_of_ours_is_refused(servers: Servers) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = threading.Thread(target=lambda: _answer_like_a_web_server(listener))
        mine.start()
        with pytest.raises(KeyRefused, match="not this run's server"):
            Connection.open(*listener.getsockname(), KEY, "echo", {}, timeout_s=WITHIN_S)
        mine.join(WITHIN_S)


def _answer_like_a_web_server(listener: socket.socket) -> None:
    sock, _ = listener.accept()
    with sock:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        sock.recv(4096)


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        started = time.monotonic()
        with pytest.raises(ConnectionLost, match="did not finish the handshake"):
            Connection.open(*listener.getsockname(), KEY, "echo", {}, timeout_s=0.3)
        assert time.monotonic() - started < WITHIN_S


def test_services_tick_and_an_idle_server_sleeps(servers: Servers) -> None:
    servers.start(tick_s=0.05)
    used = time.process_time()
    started = time.monotonic()
    until(lambda: servers.echo.ticks >= 10)
    took = time.monotonic() - started
    assert took > 0.35
    assert time.process_time() - used < 0.5 * took


def test_the_server_listens_on_loopback_unless_told_otherwise(servers: Servers) -> None:
    host, port = servers.start().address
    assert host == "127.0.0.1"
    assert port > 0


def test_a_short_key_is_refused() -> None:
    with pytest.raises(BadInput, match="accepted: 32 random bytes"):
        KeyedServer(b"short", {})


def test_many_clients_at_once_all_get_their_own_answers(servers: Servers) -> None:
    server = servers.start()
    wrong: list[Any] = []

    def talk(number: int) -> None:
        with Connection.open(*server.address, KEY, "echo", {}, timeout_s=WITHIN_S) as client:
            client.receive(WITHIN_S)
            for n in range(50):
                client.send([number, n])
                if client.receive(WITHIN_S) != [number, n]:
                    wrong.append((number, n))

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert not server.refusals
