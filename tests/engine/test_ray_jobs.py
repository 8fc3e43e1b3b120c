"""Runs that are jobs of a cluster of Ray's: what its job server says of them, and what they do there."""

from __future__ import annotations

import json
import secrets
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from _leaks import orphans_waited_for
from engine._ray_cluster import START_S, Cluster, free_port
from faults._queue import found, until
from faults._running import BUSY, VOLARY, events, last_step, outcome, running, session, state
from volary.actors.cluster import ActorSettings
from volary.actors.job import HELD, JOB
from volary.engine._base import Launch
from volary.engine.launchers import ray_jobs
from volary.engine.launchers.queue import BatchJob, JobState
from volary.engine.ray import ACTORS, RayEngine
from volary.errors import BadInput, RunError, SettingError
from volary.jobs.machines.clusters import jobs_of_clusters, note_submitted
from volary.jobs.queue import LocalQueue
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.run.launch.queued import QueuedJob, job_of, note_job

# as a cluster of Ray 2.60 has answered, without what nobody reads
JOBS = [
    {"type": "SUBMISSION", "submission_id": "volary-a-1", "status": "RUNNING", "message": "Job is currently running."},
    {"type": "SUBMISSION", "submission_id": "volary-b-1", "status": "RUNNING", "message": "Job is currently running."},
    {"type": "SUBMISSION", "submission_id": "volary-c-1", "status": "PENDING", "message": "Job has not started yet."},
    {"type": "SUBMISSION", "submission_id": "volary-d-1", "status": "SUCCEEDED", "message": "Job finished."},
    {"type": "SUBMISSION", "submission_id": "volary-e-1", "status": "FAILED", "driver_exit_code": 127, "message": "x"},
    {
        "type": "SUBMISSION",
        "submission_id": "volary-f-1",
        "status": "FAILED",
        "driver_exit_code": None,
        "message": "a\nb",
    },
    {"type": "DRIVER", "submission_id": None, "status": "RUNNING", "message": None},
]
NODES = [
    {"node_id": "1", "state": "ALIVE", "resources_total": {"CPU": 4.0, "memory": 1e9}},
    {"node_id": "2", "state": "ALIVE", "resources_total": {"CPU": 2.0, "GPU": 1.0}},
]


class _Answers(BaseHTTPRequestHandler):
    """A job server's answers. token: that it asks for. refuses: to take a job, with these words."""

    token, refuses = "", ""
    places: ClassVar[list[dict[str, object]]] = []
    taken: ClassVar[list[dict[str, object]]] = []

    def do_GET(self) -> None:
        if self.token and self.headers.get("Authorization") != f"Bearer {self.token}":
            self._say(401, "Unauthorized: Missing authentication token")
        elif self.path == "/api/version":
            self._say(200, {"version": "4", "ray_version": "2.60.0"})
        elif self.path == "/api/jobs/":
            self._say(200, JOBS)
        elif self.path.startswith("/api/v0/"):
            rows = NODES if "/nodes" in self.path else self.places
            self._say(200, {"result": True, "msg": "", "data": {"result": {"total": len(rows), "result": rows}}})
        else:
            self._say(302, "elsewhere")

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._say(*((400, f"Traceback\n{self.refuses}\n") if self.refuses else (200, {"submission_id": "x"})))

    def _say(self, status: int, what: object) -> None:
        text = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> type[_Answers]:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return type("Answers", (_Answers,), {"taken": []})


@pytest.fixture
def server(answers: type[_Answers]) -> Iterator[str]:
    """The address of a job server that answers so."""
    with ThreadingHTTPServer(("127.0.0.1", 0), answers) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def pending(job: str) -> dict[str, object]:
    """Places of a job as Ray lists them while they are not there."""
    bundle = {"unit_resources": {"CPU": 1.0, "GPU": 0.5}, "node_id": ""}
    stats = {"scheduling_state": "NO_RESOURCES"}
    return {"name": f"{job}-0", "state": "PENDING", "bundles": [bundle, bundle], "stats": stats}


def test_states_of_jobs_are_ray_s_and_one_whose_places_are_not_there_waits(server, answers):
    jobs = [f"volary-{letter}-1@{server}" for letter in "abcdefg"]
    answers.places = [pending(jobs[1]), pending(jobs[0]) | {"state": "CREATED"}, {"name": "", "state": "PENDING"}]
    assert list(ray_jobs.states(jobs).items()) == [
        (jobs[0], JobState(waiting=False, over=False, words="RUNNING")),
        (jobs[1], JobState(waiting=True, over=False, words="PENDING (2 times 1 CPU and 0.5 GPU: NO_RESOURCES)")),
        (jobs[2], JobState(waiting=True, over=False, words="PENDING")),
        (jobs[3], JobState(waiting=False, over=True, words="SUCCEEDED")),
        (jobs[4], JobState(waiting=False, over=True, words="FAILED (status 127)")),
        (jobs[5], JobState(waiting=False, over=True, words="FAILED (b)")),
        (jobs[6], JobState(waiting=False, over=True, words="unknown to Ray by now")),
    ]


def test_a_job_whose_server_does_not_answer_is_not_over(server):
    gone = f"volary-a-1@http://127.0.0.1:{free_port()}"
    assert ray_jobs.states([gone, f"volary-d-1@{server}"]).keys() == {f"volary-d-1@{server}"}
    assert RayEngine().look(gone) is None


def test_a_run_is_submitted_as_a_script_which_waits_for_places_of_its_workers_and_servers(server, answers):
    engine, folder = RayEngine(address=server, cpus=2, spread=True), Path("it's").absolute()
    run = RunDirectory(folder / "it")
    batch = BatchJob(directory=run, command=["python", "a b"], workers=4, servers=1, folder=folder)
    enters, begins = engine.batch_file(batch).splitlines()[1:]
    assert shlex.split(enters) == ["cd", str(folder), "||", "exit"]
    words = shlex.split(begins)
    asked = ActorSettings(**json.loads(words[4]))
    assert (asked.count, asked.cpus, asked.spread, asked.address) == (5, 2, True, "auto")
    assert words[5:] == [str(run.path), "python", "a b", f">>{run.logs / 'job.log'}", "2>&1"]
    job = engine.submit(run.batch)
    (taken,) = answers.taken
    assert shlex.split(taken["entrypoint"]) == [str(run.batch)]
    assert job == f"{taken['submission_id']}@{server}"
    assert taken["runtime_env"]["env_vars"][JOB] == job


def test_a_job_that_ray_does_not_take_says_why(server, answers):
    answers.refuses = "ValueError: no such thing"
    with pytest.raises(BadInput, match="engine: Ray does not take the job: ValueError: no such thing"):
        RayEngine(address=server).submit(Path("job.sh"))


def test_in_its_job_a_run_begins_at_once_on_the_places_that_the_job_holds(monkeypatch):
    engine = RayEngine(address="http://alpha:8265")
    assert engine.queues()
    monkeypatch.setenv(JOB, "volary-it-1@http://alpha:8265")
    monkeypatch.setenv(HELD, "volary-it-1@http://alpha:8265-0")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:6379")
    assert not engine.queues()
    assert engine.is_inside("volary-it-1@http://alpha:8265")
    assert engine.host() == "127.0.0.1"
    launch = Launch(
        role="server",
        directory=RunDirectory("it"),
        command=["serve"],
        count=2,
        meeting=Meeting("127.0.0.1", 0, 0, ""),
        beside=3,
    )
    words = engine.command(launch)
    asked = ActorSettings(**json.loads(words[len(ACTORS)]))
    assert (asked.address, asked.held, asked.first) == ("127.0.0.1:6379", "volary-it-1@http://alpha:8265-0", 3)


@pytest.mark.parametrize(
    ("workers", "reason"),
    [(6, None), (7, "7 workers take 7 CPUs, and the cluster has 6")],
)
def test_what_the_cluster_s_nodes_do_not_have_together_is_refused(server, workers, reason):
    assert RayEngine(address=server).check(workers) == reason


def test_a_job_server_that_is_none_or_wants_a_token_is_said_in_a_sentence(server, answers, monkeypatch):
    address = f"http://127.0.0.1:{free_port()}"
    reason = (
        f"no job server of Ray's answers at {address}: Connection refused; the head needs pip install 'ray[default]'"
    )
    assert RayEngine(address=address).check(1) == reason
    answers.token = secrets.token_hex(16)
    assert "asks for a token: set RAY_AUTH_MODE=token" in str(RayEngine(address=server).check(1))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", answers.token)
    assert RayEngine(address=server).check(1) is None


def test_what_is_no_run_is_not_started_through_a_job_server():
    with pytest.raises(SettingError, match=r"http://alpha:8265 is a job server, which takes whole runs; accepted here"):
        RayEngine(address="http://alpha:8265").host()


def test_a_server_that_sends_elsewhere_is_not_followed_with_the_token(server):
    assert ray_jobs._ask(server, "/elsewhere").status == 302


def a_run(name: str, number: str) -> RunDirectory:
    directory = RunDirectory(Path("runs") / name)
    for part in ("checkpoints", "logs", "verdicts", "results"):
        (directory.path / part).mkdir(parents=True)
    note_job(directory, QueuedJob("ray", number, -1))
    note_submitted(directory)
    return directory


def test_the_list_of_clusters_has_what_waits_and_runs_and_forgets_what_is_over(server, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    gone = f"http://127.0.0.1:{free_port()}"
    numbers = {"a": f"volary-a-1@{server}", "d": f"volary-d-1@{server}", "x": f"volary-x-1@{gone}"}
    for name, number in numbers.items():
        a_run(name, number)
    for _ in range(2):
        listed = {one.directory.name: one.state.words for one in jobs_of_clusters()}
        assert listed == {"a": "PENDING (asks for its places)", "x": "its queue does not answer now"}
    notes = tmp_path / "state" / "volary" / "cluster-runs.json"
    assert [Path(run).name for run in json.loads(notes.read_text())] == ["a", "x"]
    notes.write_text("[1")
    assert jobs_of_clusters() == []


def test_the_order_of_a_cluster_s_queue_is_not_ours_to_change(server, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = a_run("a", f"volary-a-1@{server}")
    with pytest.raises(RunError, match=r"of ray, which has an order of its own; accepted: volary queue cancel"):
        LocalQueue().hold(str(run.path))


def volary_here(*words: str) -> subprocess.CompletedProcess[str]:
    """A command of a user's."""
    return subprocess.run([*VOLARY, *words], capture_output=True, text=True, timeout=BUSY * START_S, check=False)


@pytest.fixture
def cluster(ray: None, short: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cluster]:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_worker_niceness", "0")  # the machine may be busy
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with orphans_waited_for(), ExitStack() as stack:  # Ray's supervisor of a job waits so
        yield Cluster(short, stack, takes_jobs=True)


def told(cluster: Cluster, *more: str) -> list[str]:
    """Settings of a run that is a job there."""
    return ["engine=ray", f"engine.address={cluster.job_server}", "strategy.startup_timeout_s=600", *more]


@pytest.mark.slow  # starts a cluster
@pytest.mark.timeout(1800)
def test_runs_wait_for_each_other_in_the_cluster_and_are_stopped_and_resumed_there(cluster):
    cluster.add_node("first")
    file = session(steps=300, pace_s=0.02)
    assert volary_here("submit", file, *told(cluster, "train.steps=100000", "run.name=long")).returncode == 0
    until(lambda: last_step(found("long")) > 5, 120)
    with running(*VOLARY, "train", file, *told(cluster)) as run:
        run.wait_until(lambda: "(2 times 1 CPU: NO_RESOURCES)" in volary_here("queue").stdout, at_most_s=120)
        assert (
            "(PENDING (2 times 1 CPU: NO_RESOURCES)); follow it: volary attach it" in volary_here("resume", "it").stderr
        )
        assert volary_here("submit", file, *told(cluster, "run.name=other")).returncode == 0
        assert volary_here("queue", "cancel", "other").returncode == 0
        assert ray_jobs.states([job_of(found("other")).number])[job_of(found("other")).number].over
        assert volary_here("stop", "long").returncode == 0
        run.wait_for_step(20)
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 130, run.text()
    assert 20 < last_step(found("it")) < 300
    with running(*VOLARY, "resume", "it") as again:
        assert again.ended().status == 0, again.text()
    with running(*VOLARY, "train", file, "run.name=alone") as alone:
        assert alone.ended().status == 0, alone.text()
    assert outcome(found("it")).continues(outcome(found("alone")))
    until(lambda: volary_here("queue").stdout.startswith("the queue is empty"))


@pytest.mark.slow  # starts a cluster
@pytest.mark.timeout(1800)
def test_a_job_that_ray_stops_saves_before_it_ends_and_servers_have_places_of_theirs(cluster):
    cluster.add_node("first", cpus=3)
    file = session(pace_s=0.02, consistency="async", exchange="{name: server, servers: 1}")
    assert volary_here("submit", file, *told(cluster)).returncode == 0
    until(lambda: last_step(found("it")) > 20, 120)
    ray_jobs.cancel(job_of(found("it")).number, if_waiting=False)
    until(lambda: state(found("it")) == "stopped", 60)
    (stopped,) = events(found("it"), "stopped")
    assert stopped.data["step"] > 20
    number = job_of(found("it")).number
    until(lambda: ray_jobs.states([number])[number].over, 60)


@pytest.mark.slow  # starts a cluster
@pytest.mark.timeout(1800)
def test_a_job_on_a_node_that_ray_drains_waits_for_places_elsewhere_and_repeats_no_step(cluster):
    first = cluster.add_node("first")
    file = session(steps=400, pace_s=0.02)
    assert volary_here("submit", file, *told(cluster)).returncode == 0
    until(lambda: last_step(found("it")) > 20, 120)
    cluster.drain(first)
    (stopped,) = until(lambda: events(found("it"), "stopped"), 120)
    until(lambda: "(2 times 1 CPU:" in volary_here("queue").stdout, 120)
    cluster.add_node("second")
    until(lambda: state(found("it")) == "finished", 120)
    (resumed,) = events(found("it"), "resumed")
    assert 20 < stopped.data["step"] == resumed.data["from_step"] < 400
    with running(*VOLARY, "train", file, "run.name=alone") as alone:
        assert alone.ended().status == 0, alone.text()
    assert outcome(found("it")).continues(outcome(found("alone")))
