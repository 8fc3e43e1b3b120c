"""Refusals before Slurm is asked, and Slurm's own."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from engine._recovered import assert_trained_on_without
from engine._slurmd import started
from faults._queue import found, until
from faults._running import VOLARY, Run, events, last_step, life_of, outcome, running, session, state
from placement._recorded import RECORDED
from volary.engine.launchers.queue import BatchJob
from volary.engine.slurm import SlurmEngine
from volary.errors import SettingError
from volary.jobs.entry import entry_of
from volary.jobs.settings import settings_file
from volary.run.checkpoints import Checkpoints
from volary.run.directory import RunDirectory
from volary.run.launch.queued import job_of


def test_a_machine_without_slurm_says_so(monkeypatch):
    monkeypatch.setenv("PATH", str(Path("empty").absolute()))
    assert (SlurmEngine().check(2) or "").startswith("there is no srun here; ")


@pytest.mark.parametrize("option", ["--qos=debug", "qos debug", "-x", "", "qos=a b"])
def test_option_that_is_none_is_refused(option):
    with pytest.raises(SettingError, match=r"options has .*; accepted: long options without --, as qos=debug"):
        SlurmEngine(options=(option,))


@pytest.mark.slow  # needs a cluster
def test_what_slurm_would_not_allocate_is_refused_with_its_reason_and_no_run_is_made(slurm):
    with running(*VOLARY, "train", session(), "engine=slurm", "engine.options=[nodelist=n9]") as run:
        ended = run.ended()
    assert ended.status == 2
    assert ended.err.startswith("engine: Slurm does not take 2 workers: "), ended.err
    assert not Path("runs").exists()


FOREVER = "engine.options=[begin=now+1hour]"  # it waits in the queue


def volary(*words: str) -> subprocess.CompletedProcess[str]:
    """One more command, beside those whose run is looked at."""
    return subprocess.run([*VOLARY, *words], capture_output=True, text=True, timeout=120, check=False)


def jobs() -> list[str]:
    """The jobs in the queue: number and state."""
    said = subprocess.run(["squeue", "--noheader", "--format=%i %T"], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if not line.endswith("COMPLETING")]


def test_options_stand_in_the_batch_file_whatever_the_folder_is_called():
    engine = SlurmEngine(partition="short", account="us", time="2-12:00:00", nodes=2, gpus=1, options=("qos=debug",))
    folder = Path("it's %j").absolute()
    run = RunDirectory(folder / "it")
    text = engine.batch_file(BatchJob(directory=run, command=["python", "a b"], workers=4, servers=1, folder=folder))
    lines = [shlex.split(line.removeprefix("#SBATCH ")) for line in text.splitlines() if line.startswith("#SBATCH ")]
    options = {word for (word,) in lines}
    assert {
        "--partition=short",
        "--account=us",
        "--time=2-12:00:00",
        "--nodes=2",
        "--gpus-per-task=1",
        "--qos=debug",
    } <= options
    assert {"--ntasks=4", "--job-name=volary-it", f"--chdir={folder}"} <= options
    assert f"--output={str(folder).replace('%', '%%')}/it/logs/job.log" in options
    assert text.splitlines()[-1] == "exec python 'a b'"


@pytest.mark.slow  # needs a cluster
def test_dry_run_prints_the_batch_file_that_is_submitted_and_a_job_that_waits_can_be_looked_at_and_stopped(slurm):
    file = session(steps=20)
    printed = volary("train", file, "engine=slurm", FOREVER, "--dry-run").stdout
    assert not Path("runs").exists()
    with running(*VOLARY, "train", file, "engine=slurm", FOREVER) as run:
        run.wait_until(lambda: "starting: job " in run.text())
        assert run.directory.batch.read_text() == printed
        assert "(PENDING (BeginTime)); follow it: volary attach it" in volary("resume", "it").stderr
        assert volary("stop", "it").stdout == "it had not begun: its job is cancelled\n"
        assert "ended before the run began: CANCELLED" in run.ended().err
    assert jobs() == []


@pytest.mark.slow  # needs a cluster
def test_job_that_waits_is_in_the_list_of_the_queue(slurm):
    session(steps=20)
    assert volary("submit", "session.yaml", "engine=slurm", FOREVER).returncode == 0
    number = job_of(RunDirectory(Path("runs") / "it")).number
    assert f"job {number} of slurm: PENDING" in volary("queue").stdout


@pytest.mark.slow  # needs a cluster
def test_job_that_waits_is_cancelled_with_its_run_which_leaves_nothing(slurm):
    with running(*VOLARY, "train", session(steps=20), "engine=slurm", FOREVER) as run:
        run.wait_until(lambda: "starting: job " in run.text())
        run.process.send_signal(signal.SIGINT)
        assert run.ended().status == 130
    assert jobs() == []
    assert not Path("runs/it").exists()


@pytest.mark.slow  # needs a cluster
def test_run_goes_on_when_its_terminal_is_closed_and_is_followed_from_another_to_its_end(slurm):
    with running(*VOLARY, "train", session(steps=400, pace_s=0.05), "engine=slurm") as run:
        run.wait_for_step(5)
        run.process.send_signal(signal.SIGHUP)
        assert run.process.wait(10) == -signal.SIGHUP
        at = last_step(run.directory)
        with running(*VOLARY, "attach", "it") as attached:
            attached.wait_until(lambda: "run it: " in attached.text() and last_step(run.directory) > at + 5)
            assert len(jobs()) == 1
            attached.process.send_signal(signal.SIGINT)
            ended = attached.ended()
        assert (ended.status, state(run.directory)) == (130, "stopped"), attached.text()
        assert "volary resume it" in ended.out
        with running(*VOLARY, "resume", "it", "train.steps=410") as resumed:
            resumed.wait_until(lambda: life_of(run.directory) == 1)
            resumed.process.send_signal(signal.SIGINT)
            assert resumed.ended().status == 130, resumed.text()
        assert [event.data["setting"] for event in events(run.directory, "changed")] == ["train.steps"]


@pytest.mark.slow  # needs a cluster
def test_job_that_is_cancelled_saves_before_it_ends(slurm):
    with running(*VOLARY, "train", session(steps=4000, pace_s=0.05), "engine=slurm") as run:
        at = run.wait_for_step(5)
        subprocess.run(["scancel", job_of(run.directory).number], check=True)
        assert run.ended().status == 130, run.text()
    assert state(run.directory) == "stopped"
    assert Checkpoints(run.directory.checkpoints).steps()[-1] >= at


@pytest.mark.slow  # needs a cluster
def test_srun_starts_volary_whose_tasks_find_their_run_by_themselves(slurm):
    with running("srun", "-n2", sys.executable, "-m", "volary.worker", session(steps=20)) as run:
        assert run.ended().status == 0, run.text()
    directory = RunDirectory(Path("runs") / "it")
    assert (state(directory), last_step(directory)) == ("finished", 20)


@pytest.mark.slow  # two lives of a run
def test_job_that_is_requeued_goes_on_with_its_run():
    (recorded,) = (one for one in RECORDED if one.launcher == "slurm")
    alone = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": "1"}
    variables = [f"{name}={value}" for name, value in (recorded.variables | alone).items()]
    command = ["env", *variables, sys.executable, "-m", "volary.worker", session(steps=60, workers=1, pace_s=0.03)]
    with running(*command) as run:
        run.wait_for_step(25)
        run.process.terminate()  # Slurm's notice
        run.ended(gone_within_s=15)
    directory = RunDirectory(Path("runs") / "it")
    assert state(directory) == "stopped"
    with running(*command) as again:
        assert again.ended().status == 0, again.text()
    assert (state(directory), last_step(directory)) == ("finished", 60)
    assert [event.attempt for event in events(directory, "resumed")] == [1]


def preempt() -> None:
    """A job of a partition that goes first takes all nodes, for a moment."""
    subprocess.run(["sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--wrap=true"], check=True, timeout=30)


def requeue() -> None:
    """An administrator queues the job again."""
    subprocess.run(["scontrol", "requeue", job_of(found("it")).number], check=True, timeout=30)


def limit_time() -> None:
    """The job is to be over in less than a minute."""
    number = job_of(found("it")).number
    subprocess.run(["scontrol", "update", f"jobid={number}", "timelimit=1"], check=True, timeout=30)
    until(lambda: events(found("it"), "stopped"), 60)
    subprocess.run(["scontrol", "update", f"jobid={number}", "timelimit=unlimited"], check=True, timeout=30)


@pytest.mark.slow  # needs a cluster
@pytest.mark.timeout(900)
@pytest.mark.parametrize("take_away", [preempt, requeue, limit_time])
def test_job_that_slurm_takes_its_nodes_from_saves_is_queued_again_and_repeats_no_step(slurm, take_away):
    options = ["engine.options=[requeue]"] if take_away is limit_time else []
    assert volary("submit", session(steps=1500, pace_s=0.02), "engine=slurm", *options).returncode == 0
    until(lambda: last_step(found("it")) > 20, 60)
    take_away()
    (stopped,) = until(lambda: events(found("it"), "stopped"), 60)
    until(lambda: state(found("it")) == "finished", 120)
    (resumed,) = events(found("it"), "resumed")
    assert 20 < stopped.data["step"] == resumed.data["from_step"] < 1500
    with running(*VOLARY, "train", "session.yaml", "run.name=alone") as alone:
        assert alone.ended().status == 0, alone.text()
    assert outcome(found("it")).continues(outcome(found("alone")))


@pytest.mark.slow  # needs a cluster
def test_job_of_a_user_all_of_whose_runs_wait_in_the_queue_of_a_machine_waits_in_that_of_the_cluster_alone(slurm):
    settings_file().parent.mkdir(parents=True, exist_ok=True)
    settings_file().write_text("all_runs: true\n")
    try:
        with running(*VOLARY, "train", session(steps=20), "engine=slurm") as run:
            assert run.ended().status == 0, run.text()
    finally:
        settings_file().unlink()
    assert state(run.directory) == "finished"
    assert entry_of(run.directory) is None


@contextlib.contextmanager
def two_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Run], int]]:
    """A cluster of its own; gives a function that kills the second node with the worker of a run there: its process."""
    with contextlib.ExitStack() as down:
        cluster = started(folder, down)
        if cluster.why_not:
            pytest.skip(cluster.why_not)
        monkeypatch.setenv("SLURM_CONF", str(cluster.conf))

        def lose(run: Run) -> int:
            victim = run.pid(1)
            step = psutil.Process(victim).parent()
            assert step is not None
            for daemon in (psutil.Process(int((folder / "slurmd.n2.pid").read_text())), step):
                daemon.kill()
            return victim

        yield lose


def declare_lost() -> None:
    """Let Slurm find at once what it would find after SlurmdTimeout."""
    lost = ["scontrol", "update", "nodename=n2", "state=down", "reason=lost"]
    subprocess.run(lost, check=True, timeout=30)


@pytest.mark.slow  # a cluster of its own, which loses a node
def test_node_that_is_lost_is_named_by_its_worker_and_the_run_is_resumed_on_what_is_left(tmp_path_factory, monkeypatch):
    with two_nodes(tmp_path_factory.mktemp("slurm"), monkeypatch) as lose:
        with running(*VOLARY, "train", session(steps=400, pace_s=0.03), "engine=slurm", "engine.nodes=2") as run:
            run.wait_for_step(25)
            victim = lose(run)
            ended = run.ended(at_most_s=10, gone_within_s=10)
        assert ended.status == 4
        words = rf"rank 1 \(host {re.escape(socket.gethostname())}, process {victim}\) died; last step \d+, in "
        assert re.search(words, ended.err), ended.err
        declare_lost()
        with running(*VOLARY, "resume", "it", "engine.nodes=1") as again:
            assert again.ended().status == 0, again.text()
        assert (state(run.directory), last_step(run.directory)) == ("finished", 400)


@pytest.mark.slow  # a cluster of its own, which loses a node
def test_run_that_recovers_trains_on_from_memory_without_a_node_that_is_lost(tmp_path_factory, monkeypatch):
    settings = ["engine=slurm", "engine.nodes=2", "strategy.recover=memory"]
    with two_nodes(tmp_path_factory.mktemp("slurm"), monkeypatch) as lose:
        with running(*VOLARY, "train", session(steps=400, pace_s=0.03), *settings) as run:
            run.wait_for_step(25)
            lose(run)
            declare_lost()
            assert run.ended(at_most_s=90, gone_within_s=10).status == 0, run.text()
        assert_trained_on_without(1, run.directory, 400)
