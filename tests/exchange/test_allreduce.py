"""The all-reduce exchange, and the collectives beside it, among real processes."""

from __future__ import annotations

import os

import pytest
import torch

from _workers import joined
from exchange._ranks import Turns
from volary.comm.groups.blocking import add_up, gather, take_all_from_first
from volary.comm.memory.futex import why_not
from volary.comm.sums.route import BufferShape
from volary.comm.topology.links import Links
from volary.comm.topology.switch_points import COLLECTIVES, SwitchPoints
from volary.comm.topology.topology import Topology
from volary.errors import PeerLost, SettingError
from volary.exchange import ROOM as EXCHANGES
from volary.exchange.overlap.broadcasts import Broadcasts
from volary.run.database.traffic import totals

ROUTES = ["torch", pytest.param("shared", marks=pytest.mark.skipif(bool(why_not()), reason=why_not()))]


def push_and_pull(rank: int, world_size: int, route: str) -> tuple[list[list[float]], int, int]:
    turns = Turns(route)
    seen = []
    for turn in range(3):
        turns.contribute(rank + 1.0, 10.0 * rank * turn)
        turns.release()
        for slot in turns.buckets.slots:
            turns.exchange.pull(slot.gate)
        seen.append([turns.agreed(number) for number in range(2)])
        turns.exchange.settle()
        turns.exchange.wait_for(lambda turn=turn: len(turns.heard) > turn)
    turns.exchange.close()
    assert turns.heard == [[3.0] * 3] * 3
    return seen, *totals(turns.exchange.traffic)


@pytest.mark.parametrize("route", ROUTES)
def test_what_is_pulled_is_the_sum_of_what_all_pushed_and_bytes_on_the_wire_are_counted(workers, route):
    # by torch, of 2 buckets of 1016 values and of 3 votes, each rank sends two thirds twice: a ring
    sent = 3 * (2 * 5418 + 16) if route == "torch" else 0
    assert workers(3, push_and_pull, route) == [([[6.0, 0.0], [6.0, 30.0], [6.0, 60.0]], sent, sent)] * 3


def choose(rank: int, world_size: int) -> list[str]:
    said = [Turns("auto").exchange.route]
    too_much, group = BufferShape(2**50, torch.float32, torch.device("cpu")), joined(1)
    try:
        EXCHANGES.load("allreduce")(route="shared").comm_setup(group).build(group, [], too_much)
    except SettingError as error:
        said.append(str(error))
    return said


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_auto_takes_shared_memory_on_one_machine_and_a_route_that_cannot_be_is_refused_on_all_ranks(workers):
    for auto, refused in workers(2, choose):
        assert auto == "shared memory, since all 2 workers are on one machine"
        assert refused.startswith("exchange.route is 'shared', but shared memory cannot be used: ")
        assert refused.endswith("accepted: auto, torch")


def lose_a_peer(rank: int, world_size: int) -> list[str]:
    turns = Turns("torch")
    add_up(torch.zeros(1), joined())  # the connections stand
    if rank == 1:
        os._exit(0)
    turns.contribute(1.0, 1.0)
    turns.release()
    said = []
    waits = (turns.exchange.settle, lambda: turns.exchange.pull(turns.buckets.slots[0].gate))
    for wait in (*waits, lambda: turns.exchange.wait_for(lambda: bool(turns.heard))):
        with pytest.raises(PeerLost) as lost:
            wait()
        said.append(str(lost.value))
    turns.exchange.close()
    raise PeerLost("; ".join(dict.fromkeys(said)))


def test_a_peer_that_goes_is_a_peer_lost_in_one_line_for_everybody_who_waits(workers):
    with pytest.raises(Exception, match=r"the exchange broke: |ended with 0") as ended:
        workers(2, lose_a_peer)
    cause = str(ended.value)
    assert "ended with 0" in cause or ("\n" not in cause and ";" not in cause)


def odd_tensors() -> list[torch.Tensor]:
    pictures = torch.zeros(2, 3, 2, 2).to(memory_format=torch.channels_last)
    kinds = [torch.zeros(3, dtype=kind) for kind in (torch.bool, torch.int16, torch.bfloat16, torch.complex64)]
    return [torch.zeros(()), torch.zeros(3, 4).t(), pictures, torch.zeros(6)[::2], torch.zeros(0), *kinds]


def hand_out(rank: int, world_size: int, together: bool) -> tuple[list[list[complex]], list[list[int]]]:
    tensors = odd_tensors()
    for tensor in tensors if rank == 0 else ():
        tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape))
    for some in [tensors, []] if together else [[tensor] for tensor in tensors]:
        take_all_from_first(some, joined())
    gathered = gather(torch.tensor([rank, 7]), joined())
    return [tensor.to(torch.complex64).flatten().tolist() for tensor in tensors], gathered.tolist()


@pytest.mark.parametrize("together", [True, False])
def test_tensors_of_any_type_and_layout_are_handed_out_and_gathered(workers, together):
    first, second = workers(2, hand_out, together)
    assert first == second
    assert first[0][2] == [*range(24)]
    assert first[1] == [[0, 7], [1, 7]]


def test_a_route_that_nobody_knows_is_refused_with_the_nearest_and_those_there_are():
    match = r"route is an unknown name 'rings'; did you mean 'ring'\? Known: auto, shared, linear, ring, .*two_level"
    with pytest.raises(SettingError, match=match):
        EXCHANGES.load("allreduce")(route="rings")


@pytest.mark.parametrize("route", ["torch", "shared"])
def test_a_topology_is_refused_where_the_route_asks_for_none(route):
    with pytest.raises(SettingError, match=f"topology is given and route is '{route}'.*accepted: auto, linear, ring"):
        EXCHANGES.load("allreduce")(route=route, topology="cluster.yaml")


def broadcast_as_measured(rank: int, world_size: int) -> list[int]:
    ways = {collective: [(0, "chain")] for collective in COLLECTIVES}
    taken = []
    for measured in (SwitchPoints(ways, dict.fromkeys(COLLECTIVES, 10**6)), None):
        broadcasts = Broadcasts(Links(joined()), Topology.of([0], [1], [2]), measured)
        values = torch.full((1000,), rank, dtype=torch.uint8)
        broadcasts.send(values)
        assert not values.any()
        taken.append(broadcasts.sent_bytes)
    return taken


def test_a_broadcast_goes_the_way_that_was_measured_to_be_fastest_here(workers):
    everyone = workers(3, broadcast_as_measured)
    assert [chain for chain, _ in everyone] == [1000, 1000, 0], "down a line each sends it on once"
    assert [tree for _, tree in everyone] == [2000, 0, 0], "few bytes go down a tree unless something was measured"
