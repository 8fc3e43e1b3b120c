"""What is refused before Slurm is asked, and what it refuses itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from faults._running import VOLARY, events, last_step, running, session, state
from placement._recorded import RECORDED
from volary.engine.slurm import SlurmEngine
from volary.errors import SettingError
from volary.run.directory import RunDirectory


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
    assert [event.life for event in events(directory, "resumed")] == [1]
