"""A worker that the kernel ends for want of memory is told from one that somebody killed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults._running import session

LIMIT_BYTES = 2 * 2**30  # two workers and a driver need less


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A control group below our own (version 2) that may use LIMIT_BYTES."""
    own = next(
        (line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::")), None
    )
    if own is None:
        pytest.skip("needs control groups of version 2")
    group = Path("/sys/fs/cgroup", own.strip("/"), f"volary-{secrets.token_hex(4)}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a control group of its own: {error}")
    try:
        if not (group / "memory.max").exists():
            pytest.skip("needs control groups that limit memory; here the controller is not handed down")
        (group / "memory.max").write_text(str(LIMIT_BYTES))
        (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        group.rmdir()


@pytest.mark.root
def test_worker_that_runs_out_of_memory_is_named_with_that_reason(launch, small_memory):
    run = launch(
        "train",
        session(fault="memory", at=3),
        preexec_fn=lambda: (small_memory / "cgroup.procs").write_text(str(os.getpid())),
    )
    ended = run.ended()
    assert ended.status == 4
    assert ended.err.startswith("rank 1 (host ")
    assert " was killed by SIGKILL, out of memory; last step 2, in forward" in ended.err.splitlines()[0]
