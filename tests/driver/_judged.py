"""Input of a judge in tests: heartbeats of workers, each one's verdict, and a run without a checkpoint."""

from __future__ import annotations

import socket

import pytest

from volary.driver.watching.failure_detector import FailureDetector, Rules, WorkerBeat
from volary.driver.watching.judge import judge
from volary.engine._base import Ended, Exited
from volary.errors import VolaryError
from volary.run.directory import RunDirectory
from volary.run.verdict import Verdict

HOST = socket.gethostname()
RULES = Rules(5, 10, 120)
FRAMES = ("net.py:9 in forward", "    boom()", "... 8 frames of volary and torch")
AT = "net.py:9 in forward: "
AGAIN = "begin again, as there is no checkpoint yet: volary resume it"


def watched(world_size: int = 3, joined: int = 3, rules: Rules = RULES) -> FailureDetector:
    watch = FailureDetector(world_size, rules, now=0.0)
    watch.placed(dict.fromkeys(range(world_size), HOST))
    for rank in range(joined):
        watch.joined(rank, rank, 100 + rank, "h")
        watch.on_beat(rank, WorkerBeat(step=7, phase="forward", progress=1))
    return watch


def said(
    rank: int,
    outcome: str,
    reason: str = "",
    frames: tuple[str, ...] = (),
    exit_code: int = 3,
    step: int = 7,
) -> Verdict:
    return Verdict(
        rank=rank,
        outcome=outcome,
        step=step,
        phase="forward",
        reason=reason,
        place=reason.partition(": ")[0] if frames else "",
        frames=frames,
        exit_code=exit_code,
        host="h",
    )


def verdict_of(
    directory: RunDirectory,
    watch: FailureDetector,
    exits: list[Exited],
    *verdicts: Verdict,
    launcher: Ended | None = None,
) -> VolaryError:
    with pytest.raises(VolaryError) as caught:
        judge(directory, watch, exits, {verdict.rank: verdict for verdict in verdicts}, launcher=launcher)
    return caught.value


def lines(error: VolaryError) -> list[str]:
    """The output of a command."""
    return error.report.splitlines()
