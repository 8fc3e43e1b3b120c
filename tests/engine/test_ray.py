"""Refusals before Ray is asked, a cluster that runs already, and actors of the user's own."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from engine._ray_cluster import RAY_START, START_S, free_port, has_cpus
from faults._running import BUSY, VOLARY, last_step, learnt, running, session, state
from volary.actors.cluster import scratch
from volary.comm.groups.listeners import listeners
from volary.engine.ray import RayEngine
from volary.errors import SettingError
from volary.run.directory import RunDirectory


def elastic_session() -> str:
    return session(workers=1, pace_s=0.05, consistency="async", exchange="{name: server, servers: 1}")


OWN = """
import sys
import ray
from volary.actors import train

if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=sys.argv[1])
    rank = ray.remote(num_cpus=1)(train)
    ray.get([rank.remote("session.yaml", number, 2, ["train.steps=15"]) for number in range(2)])
"""

ENDS = """
import ctypes
import os
import subprocess
from volary.actors import cluster as ours
from volary.run.machine import descendants

descendants.KILLED_WITHIN_S = float("inf")
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: orphans are this process's, which does not ask after them
if (driver := os.fork()) == 0:
    cluster = subprocess.Popen(["sh", "-c", "sleep 600 & echo; wait"], stdout=subprocess.PIPE)
    cluster.stdout.readline()
    ours.end_cluster()
    os._exit(0)
assert os.waitpid(driver, 0)[1] == 0
assert os.WIFSIGNALED(os.wait()[1])
"""


def test_a_machine_without_ray_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert RayEngine().check(2) == "Ray is not installed here: pip install 'volary[ray]'"


@pytest.mark.parametrize("address", ["auto", "alpha", "alpha:", "ray://alpha:x"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(SettingError, match="accepted: host:port of a cluster's head, as alpha:6379"):
        RayEngine(address=address)


def test_bringing_code_to_a_cluster_that_is_started_here_is_refused():
    with pytest.raises(SettingError, match=r"bring is for a cluster that runs \(address\)"):
        RayEngine(bring=("net.py",))


def test_a_cluster_that_does_not_answer_is_named_before_anything_starts(monkeypatch):
    monkeypatch.setattr("volary.engine.ray.find_spec", lambda _: True)
    address = f"127.0.0.1:{free_port()}"
    assert RayEngine(address=address).check(2) == f"no cluster of Ray's answers at {address}: Connection refused"


def test_the_end_of_a_cluster_does_not_wait_for_processes_that_have_ended_though_nobody_asks_after_them():
    subprocess.run([sys.executable, "-c", ENDS], check=True, timeout=BUSY * START_S)


def test_a_cluster_that_asks_for_a_token_says_which_variables_to_set(monkeypatch):
    monkeypatch.setattr("volary.engine.ray.find_spec", lambda _: True)
    words = (
        "ray.exceptions.AuthenticationError: RPC error: InvalidAuthToken: Authentication token is missing or incorrect"
    )
    monkeypatch.setattr("volary.engine.ray.answer_of", lambda asked: subprocess.CompletedProcess(asked, 1, "", words))
    with socket.create_server(("127.0.0.1", 0)) as head:
        reason = RayEngine(address=f"127.0.0.1:{head.getsockname()[1]}").check(2)
    assert "asks for a token: set RAY_AUTH_MODE=token" in str(reason)


@pytest.mark.slow  # starts a cluster
def test_a_run_takes_its_places_in_a_cluster_that_runs_and_leaves_it_alone(ray, short, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    address = f"127.0.0.1:{free_port()}"
    head = ["--head", "--port", address.partition(":")[2], "--node-ip-address=127.0.0.1", "--num-cpus=2", "--block"]
    quiet = ["--include-dashboard=false", f"--temp-dir={short}", "--disable-usage-stats"]
    with running(sys.executable, "-c", RAY_START, "start", *head, *quiet, name="head") as cluster:
        cluster.wait_until(lambda: has_cpus(address, 2), START_S)
        file, settings = session(steps=20), ["engine=ray", f"engine.address={address}"]
        many = ["strategy.workers=3", "data.batch_size=30"]
        refused = subprocess.run(
            [*VOLARY, "check", file, *settings, *many], capture_output=True, text=True, timeout=120, check=False
        )
        assert "3 workers take 3 CPUs, and the cluster has 2" in refused.stdout + refused.stderr
        with running(*VOLARY, "train", file, *settings) as run:
            assert run.ended().status == 0, run.text()
        assert (state(run.directory), last_step(run.directory)) == ("finished", 20)
        assert cluster.process.poll() is None


@pytest.mark.slow  # starts a cluster
def test_workers_below_actors_join_a_run_that_another_engine_began(ray):
    with running(*VOLARY, "train", elastic_session(), "strategy.startup_timeout_s=300") as run:
        run.wait_for_step(1)
        command = [*VOLARY, "join", "it", "engine=ray", "--quiet"]
        joining = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            run.wait_until(lambda: learnt(run, 1) or joining.poll() is not None, at_most_s=120)
            assert learnt(run, 1), joining.communicate()[0]
            run.process.terminate()
            assert run.ended(gone_within_s=10).status == 130, run.text()
            assert joining.wait(60) == 0
        finally:
            joining.kill()
            joining.communicate()


@pytest.mark.slow  # starts a cluster
def test_actors_of_the_user_s_own_are_the_ranks_of_a_run(ray, short):
    session(steps=20)
    Path("own.py").write_text(OWN)
    with running(sys.executable, "own.py", short) as run:
        assert run.ended(at_most_s=90).status == 0, run.text()
    directory = RunDirectory(Path("runs") / "it")
    assert (state(directory), last_step(directory)) == ("finished", 15)


@pytest.mark.slow  # starts a cluster
def test_a_cluster_of_our_own_asks_for_a_token_and_nothing_is_left_of_it(ray):
    with running(*VOLARY, "train", session(), "engine=ray") as run:
        run.wait_for_step(5)
        (gcs,) = [one for one in run.started if "gcs_server" in one.name()]
        variables, launcher = gcs.environ(), gcs.ppid()
        assert scratch(launcher).exists()
        assert variables["RAY_AUTH_MODE"] == "token"
        assert len(variables["RAY_AUTH_TOKEN"]) == 64
        (port,) = {end.port for end in listeners({gcs.pid})}
        look = f"import ray; ray.init(address='127.0.0.1:{port}', log_to_driver=False)"
        strange = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        asked = subprocess.run(
            [sys.executable, "-c", look], env=strange, capture_output=True, text=True, timeout=120, check=False
        )
        assert asked.returncode != 0
        assert "uthentication" in asked.stderr, asked.stderr
        run.process.terminate()
        run.ended(gone_within_s=10)
    assert not scratch(launcher).exists()


@pytest.mark.slow  # starts a cluster, and another
def test_run_whose_raylet_is_lost_says_so_leaves_nothing_and_is_resumed(ray):
    with running(*VOLARY, "train", session(steps=400, pace_s=0.03), "engine=ray") as run:
        run.wait_for_step(25)
        (raylet,) = [one for one in run.started if one.name() == "raylet"]
        raylet.kill()
        ended = run.ended(at_most_s=10, gone_within_s=10)
    assert ended.status == 4, run.text()
    assert re.match(r"(rank \d|ray) \(host .*, process \d+\) .*; last step \d+", ended.err), ended.err
    with running(*VOLARY, "resume", "it") as again:
        assert again.ended().status == 0, again.text()
    assert (state(run.directory), last_step(run.directory)) == ("finished", 400)
