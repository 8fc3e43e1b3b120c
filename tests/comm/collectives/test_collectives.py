"""Promises of every collective, each of its ways over real links."""

from __future__ import annotations

import pytest
import torch

from _workers import joined
from volary.comm.collectives import all_gather, broadcast, reduce, reduce_scatter, share
from volary.comm.collectives.all_gather import ALGORITHMS as GATHERING
from volary.comm.collectives.broadcast import ALGORITHMS as BROADCASTING
from volary.comm.collectives.reduce import ALGORITHMS as REDUCING
from volary.comm.collectives.reduce_scatter import ALGORITHMS as SCATTERING
from volary.comm.topology.links import Links
from volary.comm.topology.topology import Topology
from volary.errors import PeerLost, SettingError

NUMELS = [0, 1, 5, 100_003]  # none, fewer than ranks, uneven, several pieces of a line
SUMMED = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
CARRIED = [*SUMMED, torch.int64, torch.bool, torch.complex64, torch.uint8]

LAYOUTS = {
    "one rank a node": [[0], [1], [2], [3]],
    "one node": [[0, 1, 2, 3]],
    "two nodes": [[0, 1], [2, 3]],
    "nodes in turn": [[0, 2], [1, 3]],
    "uneven nodes": [[0, 1, 2], [3]],
}


def topology(layout: str, world_size: int) -> Topology:
    nodes = [[rank for rank in ranks if rank < world_size] for ranks in LAYOUTS[layout]]
    return Topology.of(*[ranks for ranks in nodes if ranks])


def mine(rank: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers, small enough to be summed exactly in every dtype."""
    return ((torch.arange(numel) + rank) % 7).to(dtype)


def added(world_size: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([mine(rank, numel, dtype) for rank in range(world_size)]).sum(0, dtype=dtype)


def broadcast_everything(rank: int, world_size: int) -> None:
    links = Links(joined())
    for layout in LAYOUTS:
        for algorithm in [*BROADCASTING, None]:
            for numel in NUMELS:
                for root in {0, world_size - 2}:
                    values = mine(rank, numel, torch.float32)
                    broadcast(links, values, root, topology(layout, world_size), algorithm)
                    assert torch.equal(values, mine(root, numel, torch.float32)), (layout, algorithm, numel, root)
    for dtype in CARRIED:
        values = mine(rank, 12, dtype).view(3, 4)
        broadcast(links, values, 1, topology("one rank a node", world_size))
        assert torch.equal(values, mine(1, 12, dtype).view(3, 4)), dtype


@pytest.mark.parametrize("n", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_all_ranks_get_what_the_root_has(workers, n):
    workers(n, broadcast_everything)


def reduce_everything(rank: int, world_size: int) -> None:
    links = Links(joined())
    for layout in LAYOUTS:
        for algorithm in [*REDUCING, None]:
            for numel in NUMELS:
                for root in {0, world_size - 2}:
                    values = mine(rank, numel, torch.float32)
                    reduce(links, values, root, topology(layout, world_size), algorithm)
                    expected = added(world_size, numel, torch.float32)
                    assert rank != root or torch.equal(values, expected), (layout, algorithm, numel, root)
    for dtype in SUMMED:
        values = mine(rank, 12, dtype).view(3, 4)
        reduce(links, values, 1, topology("one rank a node", world_size))
        assert rank != 1 or torch.equal(values, added(world_size, 12, dtype).view(3, 4)), dtype


@pytest.mark.parametrize("n", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_root_gets_the_sum_of_all(workers, n):
    workers(n, reduce_everything)


def scatter_and_gather_everything(rank: int, world_size: int) -> None:
    links = Links(joined())
    for layout in LAYOUTS:
        for scattering, gathering in [*zip(SCATTERING, GATHERING, strict=True), (None, None)]:
            for numel in NUMELS:
                for dtype in SUMMED if numel == 5 else [torch.float32]:
                    values, case = mine(rank, numel, dtype), (layout, scattering, numel, dtype)
                    own, expected = share(numel, rank, world_size), added(world_size, numel, dtype)
                    reduce_scatter(links, values, topology(layout, world_size), scattering)
                    assert torch.equal(values[own], expected[own]), case
                    all_gather(links, values, topology(layout, world_size), gathering)
                    assert torch.equal(values, expected), case
    for dtype in CARRIED:
        values = torch.zeros(11, dtype=dtype)
        values[share(11, rank, world_size)] = mine(0, 11, dtype)[share(11, rank, world_size)]
        all_gather(links, values, topology("one rank a node", world_size))
        assert torch.equal(values, mine(0, 11, dtype)), dtype


@pytest.mark.parametrize("n", [pytest.param(3, marks=pytest.mark.slow), 4])
def test_ranks_get_the_sum_of_their_shares_and_all_shares(workers, n):
    workers(n, scatter_and_gather_everything)


def many_pieces(rank: int, world_size: int) -> None:
    links, numel = Links(joined()), 3_000_000
    for layout in ("one rank a node", "one node", "two nodes"):
        values, expected = mine(rank, numel, torch.float32), added(world_size, numel, torch.float32)
        reduce_scatter(links, values, topology(layout, world_size), "ring")
        own = share(numel, rank, world_size)
        assert torch.equal(values[own], expected[own]), layout
        all_gather(links, values, topology(layout, world_size), "ring")
        assert torch.equal(values, expected), layout
        reduce(links, values, 1, topology(layout, world_size), "chain")
        assert rank != 1 or torch.equal(values, world_size * expected), layout


@pytest.mark.slow  # large; the others have fewer pieces
def test_more_pieces_than_are_asked_for_ahead_arrive_in_their_places(workers):
    workers(4, many_pieces)


def ill_conditioned_sum(rank: int, world_size: int) -> list[bytes]:
    torch.manual_seed(rank)
    links, seen = Links(joined()), []
    start = torch.randn(300_000) * 10.0 ** torch.randint(-6, 6, (300_000,))
    for _ in range(2):
        values = start.clone()
        reduce_scatter(links, values, topology("two nodes", world_size))
        all_gather(links, values, topology("two nodes", world_size))
        seen.append(values.numpy().tobytes())
    return seen


def test_sums_are_the_same_bit_for_bit_on_all_ranks_and_each_time(workers):
    assert len({one for seen in workers(4, ill_conditioned_sum) for one in seen}) == 1


def bytes_sent(rank: int, world_size: int, layout: str) -> dict[str, int]:
    where, found = topology(layout, world_size), {}
    for name, call in {
        "broadcast": lambda links, values: broadcast(links, values, 0, where, "chain"),
        "reduce": lambda links, values: reduce(links, values, 0, where, "chain"),
        "reduce_scatter": lambda links, values: reduce_scatter(links, values, where, "ring"),
        "all_gather": lambda links, values: all_gather(links, values, where, "ring"),
        "direct": lambda links, values: all_gather(links, values, where, "direct"),
    }.items():
        links = Links(joined())
        call(links, torch.ones(400_000))
        found[name] = links.sent_bytes
    return found


def test_no_rank_sends_a_byte_more_than_it_must(workers):
    sent = workers(4, bytes_sent, "one rank a node")
    assert [one["broadcast"] for one in sent] == [1_600_000, 1_600_000, 1_600_000, 0]
    assert [one["reduce"] for one in sent] == [0, 1_600_000, 1_600_000, 1_600_000]
    for name in ("reduce_scatter", "all_gather", "direct"):
        assert [one[name] for one in sent] == [1_200_000] * 4


class Watched(Links):
    """Counts what goes to another node."""

    def __init__(self, where: Topology) -> None:
        super().__init__(joined())
        self.where, self.between_nodes = where, 0

    def send(self, values, to, tag=0):
        if self.where.node_of(to) != self.where.node_of(self.rank):
            self.between_nodes += values.nbytes
        return super().send(values, to, tag)


def bytes_between_nodes(rank: int, world_size: int) -> dict[str, int]:
    where, found = topology("two nodes", world_size), {}
    for name, call in {
        "tree": lambda links, values: broadcast(links, values, 0, where, "tree"),
        "chain": lambda links, values: broadcast(links, values, 0, where, "chain"),
        "reduce": lambda links, values: reduce(links, values, 3, where, "chain"),
        "reduce_scatter": lambda links, values: reduce_scatter(links, values, where, "ring"),
        "all_gather": lambda links, values: all_gather(links, values, where, "ring"),
    }.items():
        links = Watched(where)
        call(links, torch.ones(400_000))
        found[name] = links.between_nodes
    return found


def test_what_passes_between_nodes_passes_once(workers):
    sent = workers(4, bytes_between_nodes)
    whole, half = 1_600_000, 800_000
    node = {name: (sent[0][name] + sent[1][name], sent[2][name] + sent[3][name]) for name in sent[0]}
    assert node == {
        "tree": (whole, 0),
        "chain": (whole, 0),
        "reduce": (whole, 0),
        "reduce_scatter": (half, half),
        "all_gather": (half, half),
    }


def refusals(rank: int, world_size: int) -> list[str]:
    links, where, said = Links(joined()), topology("one rank a node", world_size), []
    for call in (
        lambda: broadcast(links, torch.ones(4), 2, where),
        lambda: broadcast(links, torch.ones(4, 4).t(), 0, where),
        lambda: reduce(links, torch.ones(4, dtype=torch.int32), 0, where),
        lambda: all_gather(links, torch.ones(4), where, "treee"),
        lambda: reduce_scatter(links, torch.ones(4, device="meta"), where),
    ):
        with pytest.raises(SettingError) as refusal:
            call()
        said.append(str(refusal.value))
    return said


def test_what_cannot_be_is_refused_in_a_sentence(workers):
    assert workers(2, refusals)[0] == [
        "root is 2; accepted: 0 to 1",
        "a collective was given a tensor with gaps; accepted: contiguous tensors",
        "a sum was asked of int32; accepted: float32, float64, bfloat16, float16",
        "algorithm is 'treee'; accepted: direct, ring",
        "a collective was given a tensor on meta; accepted: on the cpu",
    ]


def lose_a_peer(rank: int, world_size: int) -> str:
    if rank == 1:
        return "left"
    with pytest.raises(PeerLost, match="the exchange broke"):
        broadcast(Links(joined()), torch.ones(100_000), 1, topology("one rank a node", world_size))
    return "lost"


def test_a_peer_that_goes_away_is_an_error_and_no_wait(workers):
    assert workers(2, lose_a_peer) == ["lost", "left"]
