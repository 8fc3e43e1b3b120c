"""Checkpoints that are on their way to a store: training continues, and a run that is killed leaves no half one."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import fsspec
import pytest

from data._stores import s3_server
from faults._running import BUSY, VOLARY, events, last_step, running, session, state
from volary.run.checkpoints import Checkpoints

pytestmark = pytest.mark.slow  # an S3 server, and two lives
PATH = "checkpoint.path=s3://bucket/checkpoints"


class HoldingProxy(socketserver.ThreadingTCPServer):
    """In front of a server: a request that begins with `held` stays here until `released`."""

    def __init__(self, server: str) -> None:
        self.held = b"nothing yet"
        where = urlsplit(server)
        self.behind = (where.hostname, where.port)
        self.connections: list[socket.socket] = []
        self.asked, self.released = threading.Event(), threading.Event()
        super().__init__(("127.0.0.1", 0), _Connection)

    def end(self) -> None:
        """Let go of what is held, and of all connections."""
        self.released.set()
        self.shutdown()
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.server.connections.append(self.request)
        with socket.create_connection(self.server.behind) as behind, contextlib.suppress(OSError):
            back = threading.Thread(target=_copy, args=(behind, self.request), daemon=True)
            back.start()
            while data := self.request.recv(2**16):
                if self.server.held in data:
                    self.server.asked.set()
                    self.server.released.wait(BUSY * 60)
                behind.sendall(data)
            behind.shutdown(socket.SHUT_RDWR)
            back.join()


def _copy(source: socket.socket, into: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(2**16):
            into.sendall(data)
        into.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture
def store(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HoldingProxy]:
    with HoldingProxy(server) as proxy:
        serving = threading.Thread(target=proxy.serve_forever)
        serving.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.server_address[1]}")
        fsspec.filesystem("s3").clear_instance_cache()
        yield proxy
        proxy.end()
        serving.join()


def test_run_that_is_killed_while_it_uploads_has_trained_on_leaves_no_half_checkpoint_and_resumes(store):
    store.held = b"PUT /bucket/checkpoints/it/step-00000040/rank-1.pt"
    with running(*VOLARY, "train", session(steps=60, pace_s=0.05), PATH) as run:
        run.wait_until(store.asked.is_set)
        run.wait_for_step(50)
        for rank in (0, 1):
            run.kill(rank)
        assert run.ended().status == 4, run.text()
    store.released.set()
    assert Checkpoints(run.directory.checkpoints).steps() == [20]
    with running(*VOLARY, "resume", "it") as again:
        ended = again.ended()
    assert ended.status == 0, again.text()
    assert "from step 20" in ended.out, again.text()
    assert (state(run.directory), last_step(run.directory)) == ("finished", 60)
    checkpoints = Checkpoints(run.directory.checkpoints)
    assert checkpoints.steps() == [20, 40, 60]
    assert checkpoints.verify(60).world_size == 2


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("listed", "GET /bucket?list-type=2&prefix=checkpoints"),
        ("put", "PUT /bucket/checkpoints/put/step-00000020/roster"),
    ],
)
def test_over_servers_a_store_that_is_away_for_longer_than_silence_is_allowed_ends_no_run(store, name, held):
    file = session(steps=60, pace_s=0.05, suspect_after_s=1, give_up_after_s=2, exchange="{name: server, servers: 1}")
    with running(*VOLARY, "train", file, PATH, f"run.name={name}", name=name) as run:
        run.wait_for_step(2)
        store.held = held.encode()
        run.wait_until(store.asked.is_set)
        asked_at = time.monotonic()
        run.wait_until(lambda: last_step(run.directory) == 60 and time.monotonic() - asked_at > 4)
        assert events(run.directory, "checkpoint") == []
        store.released.set()
        assert run.ended().status == 0, run.text()
    assert [event.step for event in events(run.directory, "checkpoint")] == [20, 40, 60]
    assert not events(run.directory, "lost")
