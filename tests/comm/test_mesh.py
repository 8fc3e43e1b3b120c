"""Ranks' own connections with each other: messages by tag, whoever comes first, and what a lost peer becomes."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed import HashStore

from _workers import Workers, joined
from volary.comm.groups import group, mesh
from volary.comm.groups.listeners import listeners
from volary.comm.groups.mesh import Mesh
from volary.comm.topology.links import Links
from volary.comm.topology.mesh_links import MeshLinks, for_small_messages
from volary.errors import PeerLost
from volary.train.member.bulletin import BoardBulletin

CPU = torch.device("cpu")
WITHIN_S = 60.0  # on a busy machine, too


@contextmanager
def meshes(size: int) -> Iterator[list[Mesh]]:
    """Yield meshes of ranks that are all in this process."""
    store = HashStore()
    with ThreadPoolExecutor(size) as pool:
        made = list(pool.map(lambda rank: Mesh(BoardBulletin(store, rank, size, 0), WITHIN_S), range(size)))
    try:
        yield made
    finally:
        for one in made:
            one.close()


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Mesh]]:
    with meshes(2) as made:
        yield made


def room(size: int) -> memoryview:
    return memoryview(bytearray(size))


@given(
    sent=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2000)), min_size=1, max_size=12),
    before=st.integers(0, 12),
    order=st.randoms(use_true_random=False),
)
def test_those_of_a_tag_come_in_the_order_of_being_sent_whether_awaited_before_or_after(pair, sent, before, order):
    by_tag = defaultdict(list)
    for number, (tag, size) in enumerate(sent):
        by_tag[tag].append((number, room(size)))
    tags = [tag for tag, _ in sent]
    order.shuffle(tags)  # tags are awaited in any order, and what is of one tag in its own
    turns = {tag: iter(found) for tag, found in by_tag.items()}
    awaited = [(*next(turns[tag]), tag) for tag in tags]
    coming = [pair[1].receive(memory, 0, tag) for _, memory, tag in awaited[:before]]
    for number, (tag, size) in enumerate(sent):
        pair[0].send(memoryview(bytes([number]) * size), 1, tag)
    coming += [pair[1].receive(memory, 0, tag) for _, memory, tag in awaited[before:]]
    for message in reversed(coming):
        message.wait()
    assert all(set(memory) == {number} for number, memory, _ in awaited)


def test_large_messages_to_each_other_pass_before_any_of_them_is_awaited(pair):
    size = 8 * 2**20  # more than the kernel keeps of a connection
    for rank in range(2):
        pair[rank].send(memoryview(bytes([rank]) * size), 1 - rank, 7)
    for rank in range(2):
        memory = room(size)
        pair[rank].receive(memory, 1 - rank, 7).wait()
        assert memory[0] == memory[-1] == 1 - rank


def test_a_peer_that_goes_is_lost_to_who_waits_and_to_who_comes_later_and_to_no_other():
    with meshes(3) as (left, middle, right):
        coming = left.receive(room(4), 1, 0)
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(coming.wait)
            middle.send(memoryview(b"last"), 0, 1)
            middle.close()
            assert isinstance(waits.exception(), PeerLost)
        memory = room(4)
        left.receive(memory, 1, 1).wait()
        assert bytes(memory) == b"last", "what it had sent before is there"
        with pytest.raises(PeerLost, match="the exchange broke"):
            left.receive(room(4), 1, 0).wait()
        right.send(memoryview(b"here"), 0, 0)
        left.receive(memory, 2, 0).wait()
        assert bytes(memory) == b"here"


def test_another_size_than_is_awaited_ends_the_connection():
    with meshes(2) as (left, right):
        coming = right.receive(room(5), 0, 0)
        with suppress(PeerLost):  # the other side may have ended it before it has all
            left.send(memoryview(b"four"), 1, 0)
        with pytest.raises(PeerLost, match="4 bytes came where 5 were awaited"):
            coming.wait()


def with_links(rank: int, world_size: int) -> int:
    """Both of a group and of one within it: the same connections. How many of this process's sockets listen."""
    for part in range(2):
        links = for_small_messages(joined(part), CPU)
        assert isinstance(links, MeshLinks)
        own, came = torch.full((3,), rank, dtype=torch.uint8), torch.empty(3, dtype=torch.uint8)
        transfer = links.receive(came, (rank - 1) % world_size, part)
        links.send(own, (rank + 1) % world_size, part).wait()
        transfer.wait()
        assert came.tolist() == [(rank - 1) % world_size] * 3
        assert (links.sent_bytes, links.received_bytes) == (3, 3)
    assert isinstance(for_small_messages(joined(), torch.device("meta")), Links), (
        "of another device's memory torch sends"
    )
    assert mesh.of(joined(0)) is mesh.of(joined(1))
    waits = mesh.of(joined()).receive(room(1), (rank + 1) % world_size, 9)
    joined().bulletin.share("all await what never comes", rank)
    group.cut()
    with pytest.raises(PeerLost):
        waits.wait()
    return len(listeners([os.getpid()]))


def test_groups_have_one_mesh_nobody_listens_once_it_stands_and_cutting_it_wakes_who_waits(workers: Workers) -> None:
    assert workers(3, with_links) == [0, 0, 0]


def with_a_stopped_peer(rank: int, world_size: int) -> str:
    """The message to a rank that sends more than the kernel keeps to one whose process was stopped."""
    bulletin = joined().bulletin.within("stopped")
    own = Mesh(bulletin, 0.5)
    pids = bulletin.share("process", os.getpid())
    told = ""
    if rank == 0:
        os.kill(pids[1], signal.SIGSTOP)
        try:
            with pytest.raises(PeerLost) as caught:
                own.send(room(2**26), 1, 0)
        finally:
            os.kill(pids[1], signal.SIGCONT)
        told = str(caught.value)
    bulletin.share("goes on", rank)
    own.close()
    return told


def test_a_stopped_peer_is_lost_after_as_long_as_the_group_waits(workers: Workers) -> None:
    told, _ = workers(2, with_a_stopped_peer)
    assert "stopped in the middle of a message for 0.5 s" in told
