"""A job of Slurm's: its batch file, how it is submitted, looked at and cancelled."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from volary.engine.launchers.commands import answer_of, last_line
from volary.engine.launchers.queue import BatchJob, JobState
from volary.errors import BadInput

NOTICE_S = 60  # before its time is over Slurm tells the driver, which saves and ends
_WAITS = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_GOES_ON = {"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"}


def text(batch: BatchJob, options: Sequence[str]) -> str:
    """The batch file. options: of sbatch, without --, beside those that each job of ours has."""
    log = str(batch.log).replace("%", "%%")  # else a pattern
    own = [
        f"job-name={batch.name}",
        f"chdir={batch.folder}",
        f"output={log}",
        "open-mode=append",
        "no-kill",  # a node that is lost is the driver's to judge
        f"signal=B:TERM@{NOTICE_S}",
    ]
    return "\n".join(
        [
            "#!/bin/sh",
            *(f"#SBATCH --{_quoted(option)}" for option in [*own, *options]),
            # since 22.05 srun does not read it under the name that sbatch sets
            '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
            f"exec {shlex.join(batch.command)}",
            "",
        ]
    )


def submit(file: Path) -> str:
    """The job's number. Raises BadInput with Slurm's reason if it does not take the file."""
    answer = answer_of(["sbatch", "--parsable", str(file)])
    if answer.returncode:
        raise BadInput(f"engine: Slurm does not take the job: {last_line(answer)}")
    return answer.stdout.strip().partition(";")[0]  # the cluster's name may follow


def states(jobs: Collection[str]) -> dict[str, JobState]:
    """How these jobs are; empty if the controller does not answer now."""
    answer = answer_of(["squeue", f"--jobs={','.join(jobs)}", "--states=all", "--noheader", "--format=%i|%T|%r"])
    if answer.returncode and "invalid job id" not in answer.stderr.lower():
        return {}
    rows = [line.split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2]
    known = {number: _state(state, reason) for number, state, reason in rows}
    return {job: known.get(job, _state("", "")) for job in jobs}


def requeue(job: str, *, at_its_limit: bool) -> None:
    """Queue a job again that gives way: to Slurm one that ends before it is ended is done.

    Not one that somebody has cancelled; one whose time is over only with `at_its_limit`.
    """
    shown = answer_of(["scontrol", "--oneliner", "show", "job", job]).stdout
    fields = dict(word.partition("=")[::2] for word in shown.split())
    gives_way = fields.get("PreemptTime", "None") != "None"
    if fields.get("JobState") == "RUNNING" and (gives_way or at_its_limit):
        answer_of(["scontrol", "requeue", job])


def cancel(job: str, *, if_waiting: bool = False) -> None:
    """End a job; with `if_waiting` only one that has not started."""
    answer_of(["scancel", "--quiet", *(["--state=PENDING"] if if_waiting else []), job])


def _state(state: str, reason: str) -> JobState:
    words = f"{state} ({reason})" if reason not in ("", "None") else state or "unknown to Slurm by now"
    return JobState(state in _WAITS, state not in _WAITS | _GOES_ON, words)


def _quoted(option: str) -> str:
    name, equals, value = option.partition("=")
    return f"{name}{equals}{shlex.quote(value)}" if equals else name
