"""`volary gate` and `volary relay`: workers elsewhere are in a run by one address and port; what cannot be is said."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faults._running import VOLARY, Run, events, last_step, learnt, running, session
from volary.run.directory import RunDirectory
from volary.run.launch.way import Way
from volary.session.spec import Session


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"127.0.0.1:{one.getsockname()[1]}"


@contextmanager
def said(*command: str, begins: str) -> Iterator[tuple[Run, str]]:
    """A command that goes on, once it has printed a line that begins so; that line."""
    with running(*VOLARY, *command, name=command[0]) as one:
        lines = one.wait_until(lambda: [line for line in one.text().splitlines() if line.startswith(begins)])
        yield one, lines[0]


def invited(volary) -> str:
    told = volary("invite", "it", "--workers", "2")
    assert told.status == 0, told.err
    assert "who reach the " in told.err
    return str(told.out.split()[2])


@pytest.mark.slow  # seven processes that train or carry
@pytest.mark.parametrize("strategy", ["strategy.recover=memory", "strategy.exchange={name: server, servers: 1}"])
@pytest.mark.parametrize("between", [False, True], ids=["gate", "relay"])
def test_workers_train_who_reach_a_run_by_its_gate_alone_and_are_lost_with_it(volary, strategy, between):
    served = "server" in strategy
    Path("elsewhere").mkdir()
    text = session(workers=2, pace_s=0.02, consistency="async" if served else "bsp", exchange=None)
    shutil.copy("net.py", "elsewhere")
    with running(*VOLARY, "train", text, strategy) as run:
        run.wait_for_step(3)
        if between:
            with said("relay", "--listen", free_port(), begins="relay:") as (_, token):
                trained_by(volary, run, "--relay", token)
        else:
            trained_by(volary, run, "--listen", free_port())
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 130


def trained_by(volary, run: Run, *options: str) -> None:
    """Two workers join by a gate; one leaves, one is lost with the gate."""
    with said("gate", "it", *options, begins="it is reached by the ") as (gate, _):
        line = invited(volary)
        with (
            running(*VOLARY, "join", line, cwd="elsewhere", name="first") as first,
            running(*VOLARY, "join", line, cwd="elsewhere", name="second") as second,
        ):
            run.wait_until(lambda: learnt(run, 2) and learnt(run, 3), 120)
            first.process.send_signal(signal.SIGINT)
            assert first.ended().status == 0
            run.wait_until(lambda: len(events(run.directory, "left")) == 1)
            gate.process.kill()
            run.wait_until(lambda: len(events(run.directory, "lost")) == 1)
            assert second.ended().status == 4
        gate.ended()
    at = last_step(run.directory)
    run.wait_until(lambda: last_step(run.directory) > at)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("gate it", "accepted: --listen HOST:PORT, or --relay TOKEN where nobody can connect"),
        ("gate it --listen 1.2.3.4:5 --relay relay:x", "accepted: --listen HOST:PORT, or --relay TOKEN"),
        ("gate it --listen 10.0.1.5", "--listen is '10.0.1.5'; accepted: HOST:PORT, as in 10.0.1.5:7000"),
        ("gate it --listen 10.0.1.5:0", "--listen is '10.0.1.5:0'; accepted: HOST:PORT"),
        ("gate it --listen 127.0.0.1:70000", "accepted: HOST:PORT"),
        ("gate it --listen 127.0.0.1:7000 --public :7", "--public is ':7'; accepted: HOST:PORT"),
        ("gate it --relay volary:abc", "--relay is 'volary:abc'...; accepted: the token that volary relay has printed"),
        ("gate it --relay relay:abc", "accepted: the token that volary relay has printed"),
        ("gate it --relay relay:abc --public a:1", "--public is where others reach --listen"),
        ("gate it --listen 127.0.0.1:7000", "nobody runs"),
        ("relay --listen here", "--listen is 'here'; accepted: HOST:PORT"),
        ("relay --listen 192.0.2.7:7000", "--listen 192.0.2.7:7000: "),
    ],
    ids=str,
)
def test_what_opens_no_way_is_refused(volary, command, told):
    made = Session.read(session(), ["strategy.recover=memory"])
    RunDirectory.create(RunDirectory("runs").path, "it", "x", made.to_yaml())
    ended = volary(*command.split())
    assert (ended.status, ended.out) == (2, "")
    assert told in ended.err


def test_a_port_that_is_taken_a_second_gate_and_a_relay_that_is_not_there_are_named(volary):
    with running(*VOLARY, "train", session(workers=1, pace_s=0.02), "strategy.recover=memory") as run:
        run.wait_for_step(1)
        place = free_port()
        relay = f"relay:{Way(place.split(':')[0], int(place.split(':')[1]), key=bytes(range(32)))}"
        ended = volary("gate", "it", "--relay", relay)
        assert ended.status == 2
        assert f"the relay at {place} cannot be reached: no server listens at {place}" in ended.err
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            assert f"--listen 127.0.0.1:{port}: " in volary("gate", "it", "--listen", f"127.0.0.1:{port}").err
        with said("gate", "it", "--listen", place, begins="it is reached by the ") as (gate, line):
            assert line == f"it is reached by the gate at {place}"
            second = volary("gate", "it", "--listen", free_port())
            assert f"has a gate already, at {place}; accepted: volary invite" in second.err
            token = invited(volary)
            gate.process.send_signal(signal.SIGINT)
            assert gate.ended().status == 0
        ended = volary("join", token)
        assert ended.status == 2
        assert f"by the gate at {place}, does not answer: it is over, or not reached from here: " in ended.err
        assert "gate" not in volary("invite", "it").out
        run.process.send_signal(signal.SIGINT)
        run.ended()
