"""A group that connects while the ranks still exchange in the one before, and is the next one if it is everybody's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from _workers import Workers
from volary.comm.control.board import Board
from volary.comm.control.server import KeyedServer
from volary.comm.control.store import KeyedStore
from volary.comm.groups import gloo, gloo_mesh, listening_sockets
from volary.comm.groups.group import cut, join, leave
from volary.comm.groups.listeners import listeners
from volary.comm.groups.readdressed import GlooStore
from volary.train.member.bulletin import BoardBulletin

KEY = b"the key of this test run, 32 b.."
BOUND = timedelta(seconds=60)


@pytest.fixture
def board() -> Iterator[tuple[str, int]]:
    with KeyedServer(KEY, {"board": Board()}) as server:
        yield server.address


def meet_again(
    rank: int, size: int, board: tuple[str, int], names: list[str], gives_up: int, waits_s: float
) -> tuple[float, float, bool, int]:
    """Return the sums of the group before and the next one, whether that had connected ahead, and who listens."""
    gloo.AHEAD_S = waits_s
    ahead = gloo.GroupAhead(names[rank], lambda: KeyedStore.at(*board, KEY), rank, size, "127.0.0.1", BOUND)
    ahead.start()
    before, after = torch.tensor([1.0]), torch.tensor([float(rank)])
    dist.all_reduce(before)
    known = ahead.place_when_connected()
    mesh = set(ahead.mesh)
    if rank == gives_up:
        ahead.give_up()
    leave()
    store = KeyedStore.at(*board, KEY)
    join(store, BoardBulletin(store, rank, size, 1), torch.device("cpu"), 60.0, ahead=ahead)
    dist.all_reduce(after)
    leaders = dist.new_group([0, 1])  # is made as ever
    if rank < 2:
        dist.all_reduce(torch.ones(1), group=leaders)
    return before.item(), after.item(), bool(known and mesh & gloo._meshes[0]), len(listeners([os.getpid()]))


def test_ranks_that_have_all_connected_ahead_exchange_over_these_connections(workers: Workers, board):
    listening = 0 if not listening_sockets.why_not() else pytest.approx(3, abs=3)
    assert workers(3, meet_again, board, ["next"] * 3, -1, 60.0) == [(3.0, 3.0, True, listening)] * 3


@pytest.mark.parametrize(
    ("names", "gives_up", "waits_s"), [(["next"] * 3, 1, 60.0), (["these", "these", "others"], -1, 0.5)]
)
def test_they_connect_when_they_meet_if_one_of_them_has_given_up_or_has_expected_others(
    workers: Workers, board, names, gives_up, waits_s
):
    found = workers(3, meet_again, board, names, gives_up, waits_s)
    assert [one[:3] for one in found] == [(3.0, 3.0, False)] * 3


def test_a_group_that_is_given_up_before_it_has_connected_ends_all_that_it_has_begun(workers: Workers, board):
    assert workers(2, give_up_early, board) == [("", 0)] * 2


def give_up_early(rank: int, size: int, board: tuple[str, int]) -> tuple[str, int]:
    """Return the place in a group that waits for one who never comes, and who listens once it is given up."""
    store = KeyedStore.at(*board, KEY)
    ahead = gloo.GroupAhead(f"of {rank}", lambda: store, 0, 2, "127.0.0.1", BOUND)
    ahead.start()
    store.wait(["/ahead of 0/volary/member/0", "/ahead of 1/volary/member/0"], BOUND)
    ahead.give_up()
    for thread in threading.enumerate():
        if thread.name == "connects ahead":  # it comes out of the wait for the other
            thread.join(30)
    return ahead.place_when_connected(), len(listeners([os.getpid()]))


@pytest.mark.parametrize("ahead", [False, True])
def test_a_rank_that_connects_to_one_that_has_died_comes_out_when_it_is_cut(workers: Workers, board, ahead):
    assert workers(2, connect_to_the_dead, board, ahead) == [0, 0 if not listening_sockets.why_not() else 1]


def connect_to_the_dead(rank: int, size: int, board: tuple[str, int], ahead: bool) -> int:
    """Return how many sockets listen: of rank 0 once its wait for the other is cut, and then of rank 1."""
    leave()
    store, asked = KeyedStore.at(*board, KEY), threading.Event()
    meets_at = PrefixStore("/ahead it" if ahead else "0//cpu/", store)

    class Told(GlooStore):
        """Says when gloo has read where the others listen; rank 1 never learns it."""

        def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
            if rank:
                store.get("cut")
                raise RuntimeError("it has died")
            super().wait(keys, timeout)
            asked.set()

        def multi_get(self, keys: list[str]) -> list[bytes]:
            self.wait([])
            return super().multi_get(keys)

    gloo_mesh.GlooStore = Told
    if rank:  # of the two it is to connect: its address is the greater one
        meeting = gloo_mesh.GlooMeeting(meets_at, rank, size, "127.0.0.9")
        with pytest.raises(RuntimeError, match="it has died"):
            meeting.connect(BOUND)
        meeting.cut()
        return len(listeners([os.getpid()]))
    if ahead:
        group = gloo.GroupAhead("it", lambda: KeyedStore.at(*board, KEY), rank, size, "127.0.0.1", BOUND)
        group.start()
        assert asked.wait(60)
        group.give_up()
        assert not group.place_when_connected()
    else:
        threading.Thread(target=lambda: asked.wait(60) and cut()).start()
        with pytest.raises(RuntimeError, match="gloo"):
            join(store, BoardBulletin(store, rank, size, 1), torch.device("cpu"), 60.0)
    store.set("cut", "yes")
    return len(listeners([os.getpid()]))
