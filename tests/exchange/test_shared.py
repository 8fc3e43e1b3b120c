"""Ranks of one machine add in shared memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from _workers import joined
from exchange._ranks import shape
from volary.comm.memory import futex
from volary.comm.sums.segments import SharedSum
from volary.errors import PeerLost

WITHIN_S = 120.0
pytestmark = pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())


def sum_often(rank: int, world_size: int, numels: list[int], rounds: int) -> list[float]:
    shared = SharedSum(joined().bulletin, [shape(numel) for numel in numels], timeout_s=WITHIN_S)
    seen = []
    for turn in range(rounds):
        for index, numel in enumerate(numels):
            shared.mine(index).copy_(torch.arange(numel) % 7 + rank * turn)
        shared.sum_up()
        for index, numel in enumerate(numels):
            together = turn * sum(range(world_size))
            expected = world_size * (torch.arange(numel) % 7) + together
            assert torch.equal(shared.boards[index].agreed, expected.float()), (turn, index)
        seen.append(float(shared.boards[-1].agreed[-1]))
    return seen


@pytest.mark.parametrize("n", [2, 3, 4])
def test_every_rank_reads_the_sum_of_all_in_every_round(workers, n):
    results = workers(n, sum_often, [1, 1000, 100_003], 50)
    assert all(result == results[0] for result in results)


def descriptors(rank: int, world_size: int) -> tuple[int, int, int, bool]:
    before, named_before = len(list(Path("/proc/self/fd").iterdir())), named()
    shared = SharedSum(joined().bulletin, [shape(1000)], timeout_s=WITHIN_S)
    shared.sum_up()
    after, maps = len(list(Path("/proc/self/fd").iterdir())), Path("/proc/self/maps").read_text()
    return before, after, named() - named_before, "/memfd:volary" in maps


def named() -> int:
    """Mappings of this process of memory that has a name."""
    return Path("/proc/self/maps").read_text().count("/dev/shm/")


def test_memory_has_no_name_and_holds_no_more_than_its_mapping(workers):
    for before, after, with_a_name, mapped in workers(2, descriptors):
        assert after - before <= 1  # the mapping's own
        assert mapped
        assert not with_a_name


def meet_alone(rank: int, world_size: int) -> str:
    shared = SharedSum(joined().bulletin, [shape(10)], timeout_s=1)
    if rank == 1:
        return "left"
    with pytest.raises(PeerLost, match="rank 1 did not come") as lost:
        shared.sum_up()
    return str(lost.value)


def test_a_rank_that_does_not_come_is_named_within_the_bound(workers):
    assert "rank 1" in workers(2, meet_alone)[0]


def wait_for_late(rank: int, world_size: int) -> float:
    shared = SharedSum(joined().bulletin, [shape(10)], timeout_s=WITHIN_S)
    if rank == 1:
        time.sleep(1)  # the lateness is what is measured
    used = time.process_time()
    shared.sum_up()
    return time.process_time() - used


def test_waiting_takes_no_processor_time(workers):
    assert workers(2, wait_for_late)[0] < 0.2
