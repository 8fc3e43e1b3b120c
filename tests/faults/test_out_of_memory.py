"""A worker that the kernel ends for want of memory is told from one that somebody killed."""

from __future__ import annotations

import pytest

from _memory_group import small_memory
from faults._running import session

LIMIT_BYTES = 2 * 2**30  # two workers and a driver need less


@pytest.mark.slow  # fills memory
@pytest.mark.root
def test_worker_that_runs_out_of_memory_is_named_with_that_reason(launch):
    with small_memory(LIMIT_BYTES) as group:
        ended = launch("train", session(fault="memory", at=3), preexec_fn=group.enter).ended()
    assert ended.status == 4
    assert ended.err.startswith("rank 1 (host ")
    assert " was killed by SIGKILL, out of memory; last step 2, in forward" in ended.err.splitlines()[0]
