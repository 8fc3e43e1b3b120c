"""Checkpoints that are on their way to a store: training continues, and a run that is killed leaves no half one."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import fsspec
import pytest

from data._stores import s3_server
from faults._running import BUSY, VOLARY, last_step, running, session, state
from volary.run.checkpoints import Checkpoints

pytestmark = pytest.mark.slow  # an S3 server, and two lives
HELD = b"PUT /bucket/checkpoints/it/step-00000040/rank-1.pt"


class HoldingProxy(socketserver.ThreadingTCPServer):
    """In front of a server: the request HELD stays here until `released`."""

    def __init__(self, server: str) -> None:
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
                if HELD in data:
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
    path = "checkpoint.path=s3://bucket/checkpoints"
    with running(*VOLARY, "train", session(steps=60, pace_s=0.05), path) as run:
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
