"""The harness itself: what other tests lean on must not lie."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import shared_memory

import pytest
import torch
import torch.distributed as dist

from _leaks import Surroundings
from _workers import PRELOADED, WorkerError


def total(rank, world_size, start):
    value = torch.tensor([float(start + rank)])
    dist.all_reduce(value)
    return value


def fails_on_rank_1(rank, world_size):
    if rank == 1:
        raise KeyError("the cause")
    dist.all_reduce(torch.zeros(1))


def dies_on_rank_1(rank, world_size):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def hangs(rank, world_size):
    threading.Event().wait()


def preloaded(rank, world_size):
    return gc.get_freeze_count() > 0 and PRELOADED in sys.modules


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are not forked")
def test_what_takes_long_to_import_is_there_when_a_worker_begins(workers):
    assert workers(1, preloaded) == [True]


def test_workers_are_joined_and_return_their_results_by_rank(workers):
    assert [value.item() for value in workers(3, total, 10)] == [33.0, 33.0, 33.0]
    assert [value.item() for value in workers(1, total, 10)] == [10.0]


def test_a_workers_exception_is_the_tests_with_its_traceback_as_the_cause(workers):
    with pytest.raises(KeyError, match="the cause") as caught:
        workers(2, fails_on_rank_1)
    assert "rank 1 of 2" in str(caught.value.__cause__)
    assert "in fails_on_rank_1" in str(caught.value.__cause__)


def test_a_worker_that_is_killed_is_named(workers):
    with pytest.raises(WorkerError, match="rank 1 of 2 ended with -9"):
        workers(2, dies_on_rank_1)


def test_a_worker_that_hangs_is_ended_and_its_stack_shown(workers):
    workers(2, total, 0)  # from here on starting is quick
    with pytest.raises(WorkerError, match=r"rank \d of 2 did not end within 10 s(?s:.)*in hangs"):
        workers(2, hangs, at_most_s=10)


def test_what_a_test_leaves_is_seen(monkeypatch):
    monkeypatch.setattr("_leaks.GRACE_S", 0.1)
    before = Surroundings.now()
    orphan = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    subprocess.run([sys.executable, "-c", orphan], check=True)
    ending = threading.Event()
    thread = threading.Thread(target=ending.wait, daemon=True, name="left")
    thread.start()
    segment = shared_memory.SharedMemory(create=True, size=16)

    left = before.left_since()
    assert len(left) == 3, left
    assert any("time.sleep(600)" in line for line in left)
    assert "thread 'left'" in left
    assert any(segment.name in line for line in left)

    ending.set()
    thread.join()
    segment.close()
    segment.unlink()
    before.clear()
    until = time.monotonic() + 10
    while before.left_since() and time.monotonic() < until:
        pass
    assert not before.left_since()
