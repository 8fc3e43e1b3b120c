"""Stages by what layers cost, as it is counted: the same each time, and as even as a search of all cuts finds."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import nn

from volary.network.zoo import ROOM
from volary.partition.pipelining.chain import chain_of
from volary.partition.pipelining.cuts import stage_seconds
from volary.partition.pipelining.plan import HANDED_BYTES_PER_S, StagePlan, counted_costs


def network() -> nn.Module:
    torch.manual_seed(0)
    return ROOM.load("alexnet")(dropout=0.5).build((3, 67, 67), 10)


def test_costs_are_counted_alike_each_time_and_nothing_is_changed():
    module, inputs = network(), torch.randn(4, 3, 67, 67)
    before, state = {name: one.clone() for name, one in module.state_dict().items()}, torch.get_rng_state()
    first, second = (counted_costs(chain_of(module), inputs) for _ in range(2))
    assert first == second
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())


def test_work_and_what_is_handed_over_decide_and_no_other_cut_has_a_quicker_slowest_stage():
    chain = chain_of(network())
    costs = counted_costs(chain, torch.randn(8, 3, 67, 67))
    by_name = {link.name: cost for link, cost in zip(chain.links, costs, strict=True)}
    assert by_name["conv2"].seconds > by_name["conv1"].seconds > by_name["pool1"].seconds > 0
    assert by_name["conv1"].out_bytes == 8 * 96 * 15 * 15 * 4
    plan = StagePlan.by_cost(chain, costs, 3)

    def slowest(begins: list[int]) -> float:
        ends = [*begins[1:], len(costs)]
        if not all(any(one.trained for one in costs[low:high]) for low, high in zip(begins, ends, strict=True)):
            return float("inf")
        return max(stage_seconds(costs, low, high, HANDED_BYTES_PER_S) for low, high in zip(begins, ends, strict=True))

    every = [[0, *cut] for cut in combinations(chain.legal(), 2)]
    assert slowest(list(plan.begins)) == min(map(slowest, every))


def test_named_and_counted_stages_hold_each_parameter_once():
    chain = chain_of(network())
    plan = StagePlan.by_names(chain, ["conv3", "fc6"], 3)
    assert plan.names == ["conv3", "fc6"]
    owners = plan.owners(3)
    assert {name: ranks[0] for name, ranks in owners.items() if name.endswith("weight")} == {
        **dict.fromkeys(("conv1.weight", "conv2.weight"), 0),
        **dict.fromkeys(("conv3.weight", "conv4.weight", "conv5.weight"), 1),
        **dict.fromkeys(("fc6.weight", "fc7.weight", "fc8.weight"), 2),
    }
