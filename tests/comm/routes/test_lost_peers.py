"""A rank that goes away ends a sum with PeerLost: over links, and among the ranks of a node."""

from __future__ import annotations

import threading

import pytest

from _workers import joined
from comm.routes._ranks import route, shape
from volary.comm.memory import futex, shared_memory
from volary.comm.memory.shared_memory import Segment
from volary.comm.sums.node import NodeBarrier
from volary.comm.topology.topology import Topology
from volary.errors import PeerLost


def sum_alone(rank: int, world_size: int, name: str) -> None:
    taken = route(name, joined(), [shape(1000)], Topology.of([0], [1]))
    if rank == 0:
        with pytest.raises(PeerLost, match="the exchange broke"):
            taken.sum_up(0, 0, 1000).wait()


@pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())
@pytest.mark.parametrize("name", ["ring", "two_level"])
def test_a_rank_that_goes_away_breaks_the_sum(workers, name):
    workers(2, sum_alone, name)


@pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())
def test_a_rank_of_the_node_that_does_not_come_is_named_within_the_bound():
    segment = Segment.create(4096)
    segment.close_address()
    first, second = (NodeBarrier(segment.memory, 0, [3, 5], rank, timeout_s=0.2) for rank in (3, 5))
    turn = first.arrive()
    assert not first.open(turn)
    with pytest.raises(PeerLost, match="rank 5 did not come"):
        first.wait(turn)
    assert second.arrive() == turn
    assert first.open(turn)
    first.wait(turn)


@pytest.mark.skipif(bool(futex.why_not()), reason=futex.why_not())
def test_who_waits_in_shared_memory_raises_as_that_is_cut_and_memory_that_is_shared_later_is_waited_in_as_before():
    segment = Segment.create(4096)
    segment.close_address()
    lost: list[str] = []
    waits = NodeBarrier(segment.memory, 0, [3, 5], 3, timeout_s=60)

    def wait() -> None:
        with pytest.raises(PeerLost) as problem:
            waits.wait(waits.arrive())
        lost.append(str(problem.value))

    thread = threading.Thread(target=wait)
    thread.start()
    shared_memory.cut()
    thread.join(30)
    assert lost == ["the exchange broke: rank 5 is no longer waited for"]
    first, second = (NodeBarrier(segment.memory, 1024, [3, 5], rank, timeout_s=0.2) for rank in (3, 5))
    second.arrive()
    first.wait(first.arrive())
