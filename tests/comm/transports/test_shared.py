"""Processes of one machine lend each other memory: no bytes travel, and nothing of it is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from comm.transports._pairs import OWN, WITHIN_S, anywhere, header, joined
from volary.comm.channels import connections as _connections
from volary.comm.channels import lending as _lending
from volary.comm.channels import segments as _segments
from volary.comm.channels.channel import Channel, Payload
from volary.comm.control.errors import BadFrame, ConnectionLost
from volary.comm.transports import ROOM
from volary.errors import SettingError

SIZE = 2_000_000
pytestmark = pytest.mark.skipif(bool(_segments.why_not()), reason=_segments.why_not())


def unasked(header: bytes) -> Payload | None:
    raise AssertionError("what is lent has a place")


def test_memory_may_be_collected_while_other_memory_is_looked_for() -> None:
    def collect() -> None:
        circle: list[object] = [_segments.memory(SIZE)]
        circle.append(circle)
        with _segments._ours._lock:
            del circle
            gc.collect()

    looking = threading.Thread(target=collect, daemon=True)
    looking.start()
    looking.join(WITHIN_S)
    assert not looking.is_alive()
    assert _segments.find(_segments.memory(SIZE)) is not None


def test_what_lies_in_memory_is_lent_and_no_bytes_travel() -> None:
    with joined("shared") as (client, server):
        memory = client.memory(SIZE)
        memory[:4], memory[-4:] = b"from", b"here"
        client.send(header(SIZE), memory)
        message = server.receive(unasked, WITHIN_S)
        assert message.lent
        assert message.payload is not None
        assert (bytes(message.payload[:4]), bytes(message.payload[-4:])) == (b"from", b"here")
        memory[:4] = b"seen"
        assert message.payload[:4] == b"seen"
        assert client.sent_bytes < 500
        message.release()


def test_memory_may_change_only_once_it_is_released() -> None:
    with joined("shared") as (client, server):
        memory, sent = client.memory(SIZE), threading.Event()
        client.send(header(10), memory[5:15], sent.set)
        message = server.receive(unasked, WITHIN_S)
        assert not sent.is_set()
        message.release()
        assert message.payload is None
        server.send(header(0))
        client.receive(anywhere, WITHIN_S)
        assert sent.is_set()


def test_memory_is_returned_when_the_other_side_goes() -> None:
    with joined("shared") as (client, server):
        memory, sent = client.memory(SIZE), threading.Event()
        client.send(header(SIZE), memory, sent.set)
        server.receive(unasked, WITHIN_S)
        server.close()
        with pytest.raises(ConnectionLost):
            client.receive(anywhere, WITHIN_S)
        assert sent.is_set()


def test_one_memory_is_lent_over_several_channels_and_from_a_transport() -> None:
    memory = ROOM.load("shared")().memory(SIZE)
    memory[:5] = b"twice"
    with joined("shared") as (client, server), joined("auto") as (other_client, other_server):
        for sender, receiver in ((client, server), (other_client, other_server)):
            sender.send(header(5), memory[:5])
            message = receiver.receive(unasked, WITHIN_S)
            assert message.payload == b"twice"
            message.release()


@pytest.mark.parametrize("payload", [bytearray(b"elsewhere"), b"elsewhere"], ids=["writable", "readonly"])
def test_what_lies_elsewhere_travels_as_bytes(payload: bytes | bytearray) -> None:
    with joined("shared") as (client, server):
        sent = threading.Event()
        client.send(header(9), memoryview(payload), sent.set)
        assert sent.is_set()
        message = server.receive(anywhere, WITHIN_S)
        assert not message.lent
        assert message.payload == b"elsewhere"


@pytest.mark.parametrize(
    ("connecting", "listening", "lent"), [("auto", "shared", True), ("auto", "tcp", False), ("tcp", "auto", False)]
)
def test_memory_is_shared_where_both_sides_want_it(connecting: str, listening: str, lent: bool) -> None:
    with joined(connecting, other=listening) as (client, server):
        client.send(header(SIZE), client.memory(SIZE))
        message = server.receive(anywhere, WITHIN_S)
        assert message.lent is lent
        message.release()


def test_shared_says_so_where_the_other_side_does_not_share() -> None:
    with pytest.raises(SettingError, match="accepted: auto, tcp"), joined("shared", other="tcp"):
        pass


def test_machines_that_are_not_one_send_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["this", "that"])
    monkeypatch.setattr(_connections, "machine", lambda: next(names))
    with joined("auto") as (client, server):
        client.send(header(SIZE), client.memory(SIZE))
        assert not server.receive(anywhere, WITHIN_S).lent


def test_memory_goes_with_its_last_user() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    memory = _segments.memory(SIZE)
    memory[0] = 1
    assert "/memfd:volary" in Path("/proc/self/maps").read_text()
    del memory
    assert "/memfd:volary" not in Path("/proc/self/maps").read_text()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(OSError, match="are available"):
        _segments.memory(2**50)


def test_lent_memory_cannot_shrink_under_its_reader() -> None:
    memory = _segments.memory(SIZE)
    found = _segments.find(memory[100:])
    assert found is not None
    with pytest.raises(PermissionError):
        os.ftruncate(found[0].descriptor, 10)


def test_nothing_but_announced_memory_is_mapped() -> None:
    memory = _segments.memory(SIZE)
    found = _segments.find(memory)
    assert found is not None
    with pytest.raises(ConnectionLost, match="not what was announced"):
        _segments.attach(os.getpid(), found[0].descriptor, 2 * SIZE)
    with Path("/proc/self/status").open() as file, pytest.raises(ConnectionLost):
        _segments.attach(os.getpid(), file.fileno(), 10)
    with pytest.raises(ConnectionLost, match="cannot be shared"):
        _segments.attach(os.getpid(), 99_999, SIZE)


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (_lending._Kind.LENT, (1, 2**40, 0, 0)),  # no segment has such a number
        (_lending._Kind.LENT, (1, 1, SIZE - 9, 0)),
        (_lending._Kind.LENT, (1, 1, 2**63, 0)),
        (9, (0, 0, 0, 0)),
    ],
)
def test_a_loan_without_sense_ends_the_channel(kind: int, numbers: tuple[int, int, int, int]) -> None:
    with joined("shared") as (client, server):
        client.send(header(SIZE), client.memory(SIZE))
        server.receive(unasked, WITHIN_S).release()
        client._wire.send(_lending._LAYOUT.pack(kind, header(10), *numbers), None)  # type: ignore[attr-defined]
        with pytest.raises(BadFrame):
            server.receive(unasked, WITHIN_S)
        with pytest.raises(ConnectionLost):
            server.receive(unasked, WITHIN_S)


def test_a_loan_returned_twice_or_never_made_is_passed_over() -> None:
    with joined("shared") as (client, server):
        server._wire.send(  # type: ignore[attr-defined]
            _lending._LAYOUT.pack(_lending._Kind.RELEASED, header(0), 77, 0, 0, 0), None
        )
        server.send(header(0))
        assert client.receive(anywhere, WITHIN_S).payload is None


LENDER = """
import sys
from volary.comm.transports import ROOM
from volary.comm.transports._base import Credentials
channel = ROOM.load("shared")().connect(("127.0.0.1", int(sys.argv[1])), Credentials({key!r}, "now", 3), {{}}, 10)
memory = channel.memory({size})
memory[:6] = b"lender"
channel.send(bytes(40) + (6).to_bytes(8, "little"), memory[:6])
channel.receive(lambda header: None)
"""


@contextmanager
def lender() -> Iterator[tuple[subprocess.Popen[bytes], Channel]]:
    """A process that has lent some memory, and our end of the channel to it."""
    met = threading.Event()
    found: list[Channel] = []

    def accepted(channel: Channel) -> None:
        found.append(channel)
        met.set()

    door = ROOM.load("shared")().listen("127.0.0.1", OWN, accepted)
    program = LENDER.format(key=OWN.key, size=SIZE)
    process = subprocess.Popen([sys.executable, "-c", program, str(door.address[1])])
    try:
        assert met.wait(WITHIN_S)
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
        for channel in found:
            channel.close()
        door.close()


def test_a_killed_lender_harms_nobody_and_leaves_nothing() -> None:
    with lender() as (process, channel):
        message = channel.receive(unasked, WITHIN_S)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert message.payload == b"lender"
        with pytest.raises(ConnectionLost):
            channel.receive(unasked, WITHIN_S)
        message.release()
    del message, channel
    assert "/memfd:volary" not in Path("/proc/self/maps").read_text()
