"""`volary train --dry-run`: the very command that the engine would run, and nothing is made."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from volary.driver.dry_run import planned
from volary.errors import BadInput
from volary.session import Session

WORKER = [sys.executable, "-m", "volary.worker"]
SERVER = [sys.executable, "-m", "volary.serving"]


def commands(engine: object, **strategy: object) -> dict[str, list[str]]:
    data = {"source": {"name": "synthetic", "shape": [4], "samples": 20}, "batch_size": 4}
    session = Session(network="softmax", data=data, strategy={"workers": 2, **strategy}, engine=engine)
    found = planned(session)
    assert not Path("runs").exists()
    return {what: shlex.split(command) for what, command in found}


def hydra() -> dict[str, str]:
    path = Path("mpirun").absolute()
    path.write_text("#!/bin/sh\necho HYDRA\n")
    path.chmod(0o755)
    return {"name": "mpi", "mpirun": str(path)}


def test_each_worker_s_command_is_shown_where_nothing_stands_between():
    assert commands("local") == {"2 workers, run 2 times; the driver listens on 127.0.0.1": WORKER}


def test_the_launcher_s_command_is_shown_with_the_workers_below_it():
    agent = [sys.executable, "-m", "volary.elastic_agent", "2", *WORKER]
    assert commands("torchrun") == {"2 workers; the driver listens on 127.0.0.1": agent}


def test_servers_come_first():
    (servers, workers), (first, second) = zip(*commands(hydra(), exchange="server").items(), strict=True)
    assert (servers.partition(";")[0], workers.partition(";")[0]) == ("1 server", "2 workers")
    for command, count, below in ((first, "1", SERVER), (second, "2", WORKER)):
        assert command[0] == str(Path("mpirun").absolute())
        assert command[command.index("-n") + 1] == count
        assert command[-3:] == below


def test_servers_beside_workers_have_no_command_of_their_own():
    assert len(commands("local", exchange={"name": "server", "servers": "colocated"})) == 1


def test_what_would_be_refused_is():
    with pytest.raises(BadInput, match="there is no /no/such/mpirun"):
        commands({"name": "mpi", "mpirun": "/no/such/mpirun"})
