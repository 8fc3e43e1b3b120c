"""Strangers at a server's door cost no thread, and a door without threads opens again once there are some."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import volary
from comm.transports._pairs import OWN, WITHIN_S, anywhere, header
from volary.comm.control.errors import ConnectionLost
from volary.comm.transports import ROOM

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit on threads is Linux's")
STRANGERS = 20
DOOR = """
import os, resource, sys, threading
from volary.comm.transports import ROOM
from volary.comm.transports._base import Credentials

hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
def accepted(channel):
    channel.send(channel.receive(lambda header: None).header)
    channel.close()
door = ROOM.load("tcp")().listen("127.0.0.1", Credentials(bytes.fromhex(sys.argv[1]), "now", 3), accepted)
if os.geteuid() == 0:  # whom no limit binds
    os.setresuid(54321, 54321, 54321)
resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
try:
    threading.Thread(target=int).start()
    sys.exit("threads can still be started")
except RuntimeError:
    pass
print(door.address[1], len(os.listdir("/proc/self/task")), flush=True)
sys.stdin.readline()
print(len(os.listdir("/proc/self/task")), flush=True)
resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
print("lifted", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def door() -> Iterator[tuple[IO[str], IO[str]]]:
    """Messages to and from a process that listens and can start no thread until it is told something."""
    where = {"PYTHONPATH": str(Path(volary.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", DOOR, OWN.key.hex()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | where,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield process.stdin, process.stdout
        finally:
            process.kill()


def test_a_door_that_can_start_no_thread_keeps_strangers_and_opens_again(door: tuple[IO[str], IO[str]]) -> None:
    say, said = door
    port, threads = map(int, said.readline().split())
    address, transport = ("127.0.0.1", port), ROOM.load("tcp")()
    with contextlib.ExitStack() as stack:
        for _ in range(STRANGERS):
            stack.enter_context(socket.create_connection(address, timeout=WITHIN_S))
        with pytest.raises(ConnectionLost):  # who has the key is let go of, and tries again until its time is over
            transport.connect(address, OWN, {}, 0.5)
        say.write("\n")
        say.flush()
        assert int(said.readline()) == threads  # strangers had none
        assert said.readline() == "lifted\n"
        channel = transport.connect(address, OWN, {}, WITHIN_S)
        stack.callback(channel.close)
        channel.send(header(0, 7))
        assert channel.receive(anywhere, WITHIN_S).header == header(0, 7)
