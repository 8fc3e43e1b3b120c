"""torchrun starts the workers: they join one run as its ranks, and its restarts recover."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist

from comm.conftest import Echo
from faults._running import BUSY, SOURCE, descendants, events, last_step, life_of, lives, running, session, state
from faults.test_network_surface import throw
from volary.comm.control.server import KeyedServer
from volary.comm.groups.listeners import listeners
from volary.run.checkpoints import Checkpoints
from volary.run.database.reader import RunReader
from volary.run.directory import RunDirectory
from volary.session import Session

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--monitor-interval=0.1")


def torchrun(*arguments: str, workers: int = 2, max_restarts: int = 6) -> tuple[str, ...]:
    how = (f"--nproc-per-node={workers}", f"--max-restarts={max_restarts}", "-m", "volary.worker")
    return (*TORCHRUN, *how, *arguments)


def workers_of(agent: int) -> dict[int, psutil.Process]:
    """The worker processes of this attempt, by rank."""
    found = {}
    for process in descendants(agent):
        try:
            if "volary.worker" in process.cmdline():
                found[int(process.environ()["RANK"])] = process
        except psutil.Error:
            continue  # it has just gone
    return found


def kill_rank_1(run, attempt: int) -> None:
    """Kill rank 1 once this attempt has done 5 steps; prove that it was there, is gone, and a new attempt begins."""
    run.attempt = attempt
    resumed_at = (
        max((event.data["from_step"] for event in events(run.directory, "resumed")), default=0) if attempt else 0
    )
    run.wait_for_step(resumed_at + 5)
    victim = workers_of(run.process.pid)[1]
    assert lives(victim)
    victim.send_signal(signal.SIGKILL)
    run.wait_until(lambda: not lives(victim), at_most_s=5)
    run.wait_until(lambda: life_of(run.directory) == attempt + 1, at_most_s=60)


def run_killed(kills: int, steps: int) -> None:
    with running(*torchrun(session(steps=steps, pace_s=0.02))) as run:
        run.wait_until(lambda: life_of(run.directory) == 0)
        for attempt in range(kills):
            kill_rank_1(run, attempt)
        ended = run.ended(at_most_s=90)
        assert ended.status == 0, run.text()
        assert (state(run.directory), last_step(run.directory)) == ("finished", steps)
        assert life_of(run.directory) == kills
        assert [event.attempt for event in events(run.directory, "failed")] == list(range(kills))
        assert "rank 1" in events(run.directory, "failed")[0].data["message"]


@pytest.mark.slow
def test_worker_killed_under_torchrun_recovers_and_the_runs_own_sockets_are_closed_to_strangers():
    with running(*torchrun(session(steps=120, pace_s=0.02))) as run:
        run.wait_until(lambda: life_of(run.directory) == 0)
        kill_rank_1(run, attempt=0)
        run.attempt = 1
        run.wait_for_step(5)
        ours = {one.pid for one in descendants(run.process.pid)}  # the agent's own store is torchrun's
        ends = listeners(ours)
        assert len({end.pid for end in ends}) == 1  # the driver beside rank 0; the workers' are closed
        assert [end for end in ends if end.beyond_loopback] == []
        for plug in throw(ends, times=5):
            plug.close()
        ended = run.ended(at_most_s=90)
        assert ended.status == 0, run.text()
        assert (state(run.directory), last_step(run.directory)) == ("finished", 120)
        (told,) = [event.data["message"] for event in events(run.directory, "failed")]
        assert told.startswith("rank 1 (host ")
        assert " died; last step " in told


@pytest.mark.slow
def test_worker_killed_five_times_in_a_row_recovers_five_times():
    run_killed(kills=5, steps=260)


@contextmanager
def started_by_hand(file: str) -> Iterator[tuple[list[subprocess.Popen[bytes]], dist.TCPStore, Callable[..., None]]]:
    """Two ranks as torchrun's agent starts them, its store, which listens on all addresses, and what starts them.

    That is given the attempt: 0 for the first start.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    place = {"TORCHELASTIC_RUN_ID": "none", "GROUP_RANK": "0", "WORLD_SIZE": "2"}
    meet = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port), "PYTHONPATH": str(SOURCE)}
    processes: list[subprocess.Popen[bytes]] = []

    def start(attempt: int = 0) -> None:
        for rank in range(2):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "TORCHELASTIC_RESTART_COUNT": str(attempt)}
            variables = os.environ | place | meet | own
            with Path(f"said-{rank}").open("w") as said:
                command = [sys.executable, "-m", "volary.worker", file]
                processes.append(subprocess.Popen(command, env=variables, stdout=said, stderr=said))

    try:
        yield processes, store, start
    finally:
        for process in processes:
            process.kill()
            process.wait()


EVIL = """
import pathlib
pathlib.Path({mark!r}).touch()
raise SystemExit("this is the attacker's")
"""


def run_of_attacker(lair: Path) -> RunDirectory:
    """A run in the attacker's folder, which the victim can read; its network leaves a mark where it is imported."""
    (lair / "evil.py").write_text(EVIL.format(mark=str(lair / "imported")))
    evil = Session(
        network=f"{lair}/evil.py:Net",
        data={"source": {"name": "synthetic", "shape": [16], "classes": 4, "samples": 64, "kind": "blobs"}},
        strategy={"workers": 2},
    )
    return RunDirectory.create(lair, "it", "it", evil.to_yaml())


NAMED = pytest.param(True, id="a run with a name", marks=pytest.mark.slow)  # the same but for how the run is found


@pytest.mark.slow  # a launcher and its workers import torch
@pytest.mark.parametrize("named", [NAMED, pytest.param(False, id="a run without a name")])
def test_whoever_writes_to_the_launchers_store_decides_nothing(tmp_path_factory, named):
    """An attacker knows address and port of torchrun's store, and has a folder that the victim can read."""
    lair = tmp_path_factory.mktemp("attacker")
    directory = run_of_attacker(lair)
    file = session(steps=5)
    if not named:
        Path(file).write_text(Path(file).read_text().replace("run: {name: it}", ""))
    with started_by_hand(file) as (processes, store, start):
        attacker = dist.TCPStore("localhost", store.port, is_master=False)
        with KeyedServer(directory.key(), {"pulse": Echo()}) as server:
            entry = {"host": server.address[0], "port": server.address[1], "run": str(directory.path)}
            attacker.set("volary/run", str(directory.path))
            attacker.set("volary/meet", json.dumps(entry | {"attempt": 0, "attempt_id": server.attempt_id}))
            start()
            statuses = [process.wait(timeout=180) for process in processes]
    said = "".join(Path(f"said-{rank}").read_text() for rank in range(2))
    assert not (lair / "imported").exists(), said
    assert statuses == [0, 0], said
    [ours] = RunDirectory.all_in(Path("runs"))
    assert (state(ours), last_step(ours)) == ("finished", 5)
    assert sorted(directory.logs.iterdir()) == sorted(directory.verdicts.iterdir()) == []


@pytest.mark.slow  # tests/train/test_resume.py has such a table
def test_ranks_with_other_settings_see_a_table_of_them_before_the_first_step():
    file = session(steps=50)
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    place = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0", "GROUP_RANK": "0", "WORLD_SIZE": "2"}
    meet = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(store.port), "PYTHONPATH": str(SOURCE)}
    processes = []
    for rank in range(2):
        variables = os.environ | place | meet | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        command = [sys.executable, "-m", "volary.worker", file, f"optimizer.lr=0.0{rank + 1}"]
        with Path(f"said-{rank}").open("w") as said:
            processes.append(subprocess.Popen(command, env=variables, stdout=said, stderr=said))
    try:
        assert [process.wait(timeout=300) for process in processes] == [5, 5]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for rank in range(2):
        said_lines = Path(f"said-{rank}").read_text().splitlines()
        assert "ranks differ, so nothing was started:" in said_lines
        assert "  setting optimizer.lr: rank 0: 0.01; rank 1: 0.02" in said_lines
    assert last_step(RunDirectory(Path("runs/it"))) == 0


@pytest.mark.slow  # as what any engine starts; here it is rank 0 under a launcher
def test_a_session_that_does_not_fit_is_refused_by_rank_0_before_the_first_step():
    with running(*torchrun(session(), "loss=mse", max_restarts=0)) as run:
        ended = run.ended(at_most_s=90)
        assert ended.status != 0
        assert "mse takes the shape of the data's targets, (samples)" in run.text()
        assert "Traceback (most recent call last)" not in run.text().partition("mse takes")[0]
        assert last_step(run.directory) == 0


@pytest.mark.slow
def test_two_agents_that_meet_as_torch_has_it_make_one_run():
    with socket.create_server(("127.0.0.1", 0)) as free:
        meet = f"--rdzv-endpoint=127.0.0.1:{free.getsockname()[1]}"
    each = (*TORCHRUN[:-2], "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=7", meet)
    command = [*each, "-m", "volary.worker", session(steps=30, pace_s=0.02)]
    with Path("other").open("wb") as said, running(*command) as run:
        other = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(SOURCE)}, stdout=said, stderr=said)
        try:
            assert run.ended(at_most_s=90).status == 0, run.text() + Path("other").read_text()
            assert other.wait(60) == 0, Path("other").read_text()
        finally:
            other.kill()
            other.wait()
    assert (state(run.directory), last_step(run.directory)) == ("finished", 30)
    with RunReader(run.directory) as reader:
        assert {row.rank for row in reader.steps()} == {0, 1}


def kill_both_once_they_have_saved(processes: list[subprocess.Popen[bytes]], run: RunDirectory) -> None:
    until = time.monotonic() + BUSY * 60
    while not Checkpoints(run.checkpoints).steps():
        assert time.monotonic() < until and all(process.poll() is None for process in processes)
        time.sleep(0.05)
    for process in processes:
        process.kill()
        process.wait()


def overwrite(store: dist.TCPStore, values: list[str], done: threading.Event) -> None:
    """Write all of `values`, over and over, to Volary's keys that are there, and to those that a start may read."""
    for value in itertools.cycle(values):
        if done.is_set():
            return
        for key in {"volary/run", "volary/meet", *(key for key in store.list_keys() if key.startswith("volary/"))}:
            store.set(key, value)


@pytest.mark.slow  # starts processes with torch
@pytest.mark.parametrize("attempt", [0, 1], ids=["a first start", "a restart"])
def test_a_stranger_who_overwrites_the_launchers_store_all_the_time_is_joined_by_nobody_and_runs_nothing(
    tmp_path_factory, attempt
):
    """From before the ranks start until they train, with addresses of its own server and whatever cannot be read."""
    lair = tmp_path_factory.mktemp("attacker")
    directory = run_of_attacker(lair)
    ours, done = RunDirectory(Path("runs") / "it"), threading.Event()
    with started_by_hand(session(steps=60, pace_s=0.02)) as (processes, store, start):
        if attempt:
            start()
            kill_both_once_they_have_saved(processes, ours)
        attacker = dist.TCPStore("localhost", store.port, is_master=False)
        with KeyedServer(directory.key(), {"pulse": Echo(), "board": Echo()}) as server:
            here = {"host": server.address[0], "port": server.address[1]}
            known = json.dumps(here | {"run": str(directory.path), "attempt": 0, "attempt_id": server.attempt_id})
            values = [json.dumps(here), known, str(directory.path), "", "[1", '{"host": "", "port": 0}', "\0" * 4096]
            attack = threading.Thread(target=overwrite, args=(attacker, values, done))
            attack.start()
            try:
                start(attempt)
                statuses = [process.wait(timeout=900) for process in processes[-2:]]
            finally:
                done.set()
                attack.join()
            joined = dict(server.refusals)
    said = "".join(Path(f"said-{rank}").read_text() for rank in range(2))
    assert not (lair / "imported").exists(), said
    assert sorted(directory.logs.iterdir()) == sorted(directory.verdicts.iterdir()) == []
    assert not joined, "nobody has even begun to prove anything to the attacker's server"
    if statuses == [0, 0]:
        assert (state(ours), last_step(ours)) == ("finished", 60)
        assert len(events(ours, "resumed")) == attempt
    else:  # rank 1 never came to read the address: it says so
        assert "rank 0 opened no run within" in said
        assert all(statuses), said
        assert "Traceback" not in said
