"""Submitting runs and changing the queue: all of them are held, so that nothing starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from volary.driver.tasks.submitting import remarks_of_queue
from volary.jobs.entry import entry_of
from volary.jobs.machines.clusters import note_submitted
from volary.jobs.memory import keep_bytes, keep_estimate
from volary.jobs.settings import settings_file
from volary.run.database.journal import Journal
from volary.run.directory import RunDirectory
from volary.run.launch.queued import QueuedJob, note_job
from volary.run.machine.cores import cores_here

SESSION = "network: lenet\ndata: {source: digits, batch_size: 16}\n"


@pytest.fixture
def submit(volary: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """`submit("a", "--priority", 5)`: a run of that name in a queue of the test's own, held."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("session.yaml").write_text(SESSION)
    return lambda name, *options: volary("submit", "session.yaml", f"run.name={name}", "--hold", *options)


def listed(volary: Callable[..., Any]) -> list[str]:
    return [Path(row["run"]).name for row in json.loads(volary("queue", "--json").out)]


def test_a_run_that_is_submitted_is_there_at_once_and_listed_with_why_it_waits(submit, volary):
    said = submit("a", "--priority", 5, "--time", "2h", "--memory", "1gb")
    assert (said.status, said.out, said.err) == (0, "runs/a\n", "queued; follow it: volary attach a\n")
    entry = entry_of(RunDirectory("runs/a"))
    assert (entry.priority, entry.time_s, entry.demand.memory_bytes, entry.demand.cores) == (5, 7200, 10**9, 1)
    assert volary("queue").out.splitlines() == [
        "run     state    priority  cores  gpus     memory  why",
        "runs/a  waiting         5      1     -  953.7 MiB  held",
    ]
    assert volary("runs").out.splitlines()[1].split()[:2] == ["a", "queued"]
    assert "queued" in volary("show", "a").out


def test_a_run_asks_for_the_memory_that_an_earlier_one_of_its_session_took_or_as_it_is_told(submit):
    submit("a")
    keep_bytes(RunDirectory("runs/a").session.read_text(), 999 << 20)
    submit("b", "train.seed=7")
    submit("c", "--memory", "1gb")
    assert [entry_of(RunDirectory(f"runs/{name}")).demand.memory_bytes for name in "bc"] == [999 << 20, 10**9]
    assert entry_of(RunDirectory("runs/c")).asked_bytes == 10**9


def test_a_run_whose_workers_come_and_go_asks_for_the_cores_of_the_fewest_unless_it_is_told_how_many(submit):
    elastic = ["strategy.recover=memory", "strategy.workers=1..4"]
    submit("a", *elastic)
    submit("b", *elastic, "--cores", 1)
    found = [entry_of(RunDirectory(f"runs/{name}")) for name in "ab"]
    assert [(one.demand.cores, one.between, one.movable) for one in found] == [(1, (1, 4), False), (1, None, True)]


def test_memory_that_only_a_dry_run_knows_is_shown_as_an_estimate(submit, volary):
    submit("a")
    keep_estimate(RunDirectory("runs/a").session.read_text(), 777 << 20)
    submit("b", "optimizer.lr=0.5")
    assert entry_of(RunDirectory("runs/b")).demand.memory_bytes == 777 << 20
    assert "777.0 MiB (estimate)" in volary("queue").out.splitlines()[2]
    assert [row["memory_from"] for row in json.loads(volary("queue", "--json").out)] == ["default", "estimate"]


def test_a_session_file_that_changes_is_said_beside_the_run_which_has_its_own_copy(submit, volary):
    submit("a")
    session = Path("session.yaml")
    session.write_text(SESSION)  # written anew, and equal
    assert volary("queue").out.splitlines()[1].endswith("  held")
    session.write_text(SESSION.replace("16", "32"))
    said = "session.yaml was changed after the run was submitted, which keeps its own copy"
    assert volary("queue").out.splitlines()[1].endswith(f"  held; {said}")
    assert "batch_size: 16" in RunDirectory("runs/a").session.read_text()
    assert remarks_of_queue(RunDirectory("runs/a")) == [said]
    session.unlink()
    assert volary("queue").out.splitlines()[1].endswith("  held")


def test_the_queue_is_changed_by_its_verbs(submit, volary):
    for name in "abc":
        submit(name)
    volary("queue", "move", "c", "--before", "b")
    assert listed(volary) == ["a", "c", "b"]
    volary("queue", "move", "b")
    assert listed(volary) == ["b", "a", "c"]
    volary("queue", "priority", "c", 2)
    assert listed(volary) == ["c", "b", "a"]
    assert volary("queue", "move", "b", "--before", "c").err.endswith(
        "runs/b has priority 0, and runs/c has 2; accepted: one of the same priority\n"
    )
    volary("queue", "cancel", "c")
    assert listed(volary) == ["b", "a"]
    assert volary("stop", "b").out == "b had not begun: its job is cancelled\n"
    assert listed(volary) == ["a"]
    assert volary("rm", "a", "--yes").status == 0
    assert listed(volary) == []
    for verb in ("hold", "release", "cancel", "move"):
        assert volary("queue", verb, "c").err == "runs/c is not in the queue; `volary queue` lists what is\n"


def test_the_list_is_shown_anew_until_the_queue_is_empty(submit, volary):
    submit("a")
    words = [sys.executable, "-m", "volary", "queue", "--watch"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert next(line for line in watching.stdout if line.startswith("runs/a")).endswith("held\n")
        volary("queue", "cancel", "a")
        said, _ = watching.communicate(timeout=60)
    assert (watching.returncode, said.splitlines()[-1]) == (
        0,
        "the queue is empty; `volary submit session.yaml` puts a run there",
    )


def test_a_run_that_gave_way_and_is_stopped_while_it_waits_is_said_to_have_begun(submit, volary):
    submit("a")
    with closing(Journal(RunDirectory("runs/a").database)) as journal:
        journal.note(life=0, state="stopped", step=3)
    said = volary("stop", "a").out.splitlines()
    assert said[0] == "a was not running: it waited to be resumed, and its job is cancelled"
    assert said[1].split()[0] == "stopped"
    assert listed(volary) == []


def test_a_run_that_left_the_queue_is_put_back_and_one_that_waits_is_not_resumed_beside_it(submit, volary):
    submit("a")
    said = volary("resume", "a")
    assert (said.status, said.err) == (
        2,
        f"{Path('runs/a').absolute()} is a job of this machine's queue (held); follow it: volary attach a\n",
    )
    volary("queue", "cancel", "a")
    assert volary("submit", "a", "--hold", "--priority", -1).status == 0
    assert listed(volary) == ["a"]


def test_a_run_is_put_back_with_other_settings_as_resume_takes_them(submit, volary):
    submit("a")
    volary("queue", "cancel", "a")
    assert "train.stesp: unknown; did you mean 'steps'?" in volary("submit", "a", "train.stesp=9").err
    assert volary("submit", "a", "--hold", "optimizer.lr=0.5").status == 0
    assert entry_of(RunDirectory("runs/a")).overrides == ("optimizer.lr=0.5",)


def test_a_mistake_in_the_user_s_settings_of_the_queue_is_said_before_anything_is_made(submit, volary, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("config").absolute()))
    settings_file().parent.mkdir(parents=True)
    settings_file().write_text("all_urns: true\n")
    said = volary("train", "session.yaml")
    assert said.status == 2
    assert "queue.yaml:1:1: all_urns: unknown; did you mean 'all_runs'?" in said.err
    assert not Path("runs").exists()


def test_runs_that_are_jobs_of_a_cluster_s_queue_are_listed_with_its_words_until_they_are_over(
    submit, volary, monkeypatch
):
    submit("a")
    for number in ("17", "18", "20"):
        run = RunDirectory.create(Path("runs"), f"job{number}", "it", SESSION)
        note_job(run, QueuedJob("slurm", number, -1))
        note_submitted(run)
    rows = ["17|PENDING|Resources", "18|RUNNING|None", "19|RUNNING|None"]
    program = Path("bin/squeue").absolute()
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{row}'\n" for row in rows))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    lines = [line.split(maxsplit=6) for line in volary("queue").out.splitlines()[2:]]
    assert lines == [
        ["runs/job17", "waiting", *"----", "job 17 of slurm: PENDING (Resources)"],
        ["runs/job18", "running", *"----", "job 18 of slurm: RUNNING"],
    ]
    assert [row.get("job") for row in json.loads(volary("queue", "--json").out)] == [None, "17", "18"]
    program.write_text("#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n")
    unknown = [line.split(maxsplit=6)[6] for line in volary("queue").out.splitlines()[2:]]
    assert unknown == [f"job {number} of slurm: its queue does not answer now" for number in (17, 18)]


def test_a_folder_for_shares_that_cannot_be_used_is_said_and_the_queue_is_listed(submit, volary, monkeypatch):
    submit("a")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(Path("config").absolute()))
    settings_file().parent.mkdir(parents=True)
    settings_file().write_text("share_folder: /no/such/folder\n")
    said = volary("queue")
    assert said.out.splitlines()[1].startswith("runs/a")
    assert said.err == "share_folder: /no/such/folder: No such file or directory\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--cores", 10_000], f"the run needs 10000 cores, and this machine has {len(cores_here())}; accepted: "),
        (["--gpus", 10_000], "the run needs 10000 GPUs, and this machine has "),
        (["--memory", "9000tb"], "GiB of memory, and this machine has "),
        (["--memory", "much"], "memory is 'much'; accepted: a size"),
        (["--time", "soon"], "time is 'soon'; accepted: a length of time"),
        (["--retries", -1], "retries is -1; accepted: a whole number, 0 or more"),
        (["--after", "nobody"], "no run at nobody and none called 'nobody' in runs/"),
        (["strategy.wrokers=2"], "strategy.wrokers: unknown; did you mean 'workers'?"),
        (["--prioritty", 3], "No such option '--prioritty'. Did you mean '--priority'?"),
    ],
)
def test_what_cannot_be_queued_is_refused_in_a_sentence_and_nothing_is_made(submit, options, sentence):
    said = submit("a", *options)
    assert said.status == 2
    assert sentence in said.err
    assert not Path("runs/a").exists()


def test_runs_do_not_come_after_each_other_in_a_circle(submit, volary):
    for name, after in (("a", []), ("b", ["--after", "a"]), ("c", ["--after", "b"])):
        submit(name, *after)
    volary("queue", "cancel", "a")
    said = volary("submit", "a", "--hold", "--after", "c")
    assert said.err == "after: runs/c comes after runs/a; accepted: runs that do not wait for it\n"
    assert listed(volary) == ["b", "c"]


def test_a_run_that_is_moved_while_it_waits_leaves_the_queue_and_can_be_put_back(submit, volary):
    submit("a")
    Path("runs/a").rename("runs/elsewhere")
    assert listed(volary) == []
    assert volary("runs").out.splitlines()[1].split()[:2] == ["elsewhere", "new"]
    assert volary("submit", "elsewhere", "--hold").status == 0
    assert listed(volary) == ["elsewhere"]


def test_nothing_comes_after_a_run_that_will_not_finish(submit, volary):
    submit("a")
    volary("queue", "cancel", "a")
    said = submit("b", "--after", "a")
    assert said.err == ("after: a is new, and nothing drives it; accepted: a run that is queued, running or finished\n")
    assert not Path("runs/b").exists()
