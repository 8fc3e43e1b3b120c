"""Ranks on this machine: one command, started several times, that meets through a file that has no name."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO

from volary.run.machine.cores import cores_here

OTHERS_WITHIN_S = 5.0  # once one rank failed, the others get this long to say what they saw
_LOOK_S = 0.05


def run(command: Sequence[str], workers: int, output: IO[bytes] | None = None, timeout_s: float | None = None) -> int:
    """Run `command` as so many ranks; the status of the first that failed, or 0. No rank outlives the call.

    output: where they print; None: where we do. Raises TimeoutError when the time is over. Linux.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with ExitStack() as ending:
        board = os.memfd_create("volary-bench")
        ending.callback(os.close, board)
        ranks: list[subprocess.Popen[bytes]] = []
        ending.callback(_end, ranks)
        for rank in range(workers):
            environment = os.environ | _place(rank, workers, board)
            ranks.append(
                subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=[board]
                )
            )
        return _follow(ranks, deadline)


def _place(rank: int, workers: int, board: int) -> dict[str, str]:
    """The variables that Volary's own engine gives a worker, with the file in place of a run's server."""
    return {
        "VOLARY_RANK": str(rank),
        "VOLARY_WORLD_SIZE": str(workers),
        "VOLARY_LIFE": "0",
        "VOLARY_MEET": f"/proc/self/fd/{board}",
        "VOLARY_DRIVER": str(os.getpid()),
        "OMP_NUM_THREADS": str(max(1, len(cores_here()) // workers)),
    }


def _follow(ranks: Sequence[subprocess.Popen[bytes]], deadline: float | None) -> int:
    """Wait for all, or for what is to be heard of the others after the first that failed."""
    failed = 0
    while any(rank.poll() is None for rank in ranks):
        if not failed and (failed := _failed(ranks)):
            deadline = time.monotonic() + OTHERS_WITHIN_S
        if deadline is not None and time.monotonic() > deadline:
            if failed:
                return failed
            raise TimeoutError("the ranks did not end in time")
        running = next((rank for rank in ranks if rank.returncode is None), ranks[0])
        with suppress(subprocess.TimeoutExpired):
            running.wait(_LOOK_S)
    return failed or _failed(ranks)


def _failed(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    codes = [code for rank in ranks if (code := rank.poll())]
    return (codes[0] if codes[0] > 0 else 128 - codes[0]) if codes else 0


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.wait()
