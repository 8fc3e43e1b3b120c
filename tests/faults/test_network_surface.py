"""Who can reach a run from outside: nobody beyond this machine, and garbage from within it does no harm."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest

from comm._wiretap import Wiretap
from faults._running import SOURCE, VOLARY, descendants, last_step, session, state
from volary.comm.control.board import Set
from volary.comm.control.connection import Connection
from volary.comm.groups.listeners import ListeningSocket, listeners
from volary.run.database.reader import RunReader

GARBAGE = {
    "random bytes": secrets.token_bytes(4096),
    "http": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "tls hello": bytes.fromhex("160301020001fc0303") + secrets.token_bytes(507),
    "oversized frame": (2**32 - 1).to_bytes(4, "big") + (2**63 - 1).to_bytes(8, "little"),
    "nothing at all": b"",
}


def throw(ends: Iterable[ListeningSocket], times: int = 8) -> list[socket.socket]:
    """Connect to every end, say each kind of garbage, and keep the connections half open; those that stand."""
    kept = []
    for end in ends:
        for garbage in list(GARBAGE.values()) * times:
            plug = socket.socket(socket.AF_INET6 if ":" in end.address else socket.AF_INET)
            plug.settimeout(0.02)
            with contextlib.suppress(OSError):
                plug.connect((end.address, end.port))
                plug.sendall(garbage)
            kept.append(plug)
    return kept


def open_files(pids: Iterable[int]) -> int:
    return max(psutil.Process(pid).num_fds() for pid in pids)


def said(*arguments: str) -> tuple[int, str]:
    """The command's status and what it said of its failure."""
    variables = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([*VOLARY, *arguments], capture_output=True, text=True, timeout=60, env=variables, check=False)
    return done.returncode, done.stderr


def test_sockets_of_a_run_are_on_loopback_and_garbage_at_all_of_them_does_not_disturb_it(launch):
    run = launch("train", session(pace_s=0.005), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    run.wait_for_step(5)
    run.process.send_signal(signal.SIGHUP)  # it was started as by nohup, and the terminal has gone
    processes = {run.process.pid, *(one.pid for one in descendants(run.process.pid))}
    workers = [run.pid(0), run.pid(1)]
    assert processes >= set(workers)
    ends = listeners(processes)
    assert {end.pid for end in ends} == {run.process.pid}  # the driver's server; the workers' are closed
    assert [end for end in ends if end.beyond_loopback] == []
    files = open_files(workers)
    plugs = throw(ends)
    try:
        at = last_step(run.directory)
        run.wait_until(lambda: last_step(run.directory) > at + 100)
        assert open_files(workers) <= files + 2  # gloo keeps a descriptor for each stranger that it hears
    finally:
        for plug in plugs:
            plug.close()

    # meanwhile nobody else can write this run, or make one of its name
    fixed = [run.directory.session, run.directory.environment, run.directory.path / "key", run.directory.path / "lock"]
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in fixed}
    second, third = said("resume", "it"), said("train", "session.yaml")
    assert second == (2, f"{run.directory.path} is being written by process {run.process.pid}\n")
    assert third[0] == 2
    assert third[1].startswith(f"the run {Path('runs/it')} exists already; choose another run.name, or resume it: ")
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in before} == before

    run.process.terminate()
    assert run.ended().status == 130, run.text()
    assert state(run.directory) == "stopped"


@pytest.mark.slow  # as above, with servers
def test_each_server_of_a_run_has_one_socket_more_on_loopback_alone(launch):
    run = launch("train", session(pace_s=0.005, exchange="{name: server, servers: 2}"))
    run.wait_for_step(5)
    with RunReader(run.directory) as reader:
        servers = json.loads(reader.info()["server_pids"])
    assert len(servers) == 2
    ends = listeners({run.process.pid, *(one.pid for one in descendants(run.process.pid))})
    assert sorted(end.pid for end in ends) == sorted([run.process.pid, *servers])
    assert [end for end in ends if end.beyond_loopback] == []
    run.process.terminate()
    assert run.ended().status == 130, run.text()


@pytest.mark.slow  # tests/comm has what is encrypted
def test_with_security_always_what_is_said_on_loopback_cannot_be_read_either(launch):
    run = launch("train", session(workers=1, pace_s=0.005), "strategy.security=always")
    run.wait_for_step(2)
    [end] = listeners([run.process.pid])
    secret = b"what nobody on the way should read"
    with (
        Wiretap((end.address, end.port)) as tap,
        Connection.open(*tap.address, run.directory.key(), "board", {}) as connection,
    ):
        connection.send(Set(1, {"k": secret}))
        connection.receive(10)
    assert tap.heard[0]
    assert all(secret not in said for said in tap.heard)
    run.process.terminate()
    assert run.ended().status == 130, run.text()
