"""Groups whose workers have samples of their own take local steps: a recursion written down."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from partition._cut import part_of
from train._training import Quick, Trained, made, session, trained
from volary.errors import SettingError
from volary.session import Session
from volary.session.script import Script
from volary.sharding.holdings import Holdings
from volary.sharding.ranges import Range

STEPS, PERIOD, RATE, GROUPS, EACH = 8, 2, 0.2, 2, 2
OUTER = {"name": "sgd", "lr": 0.7, "momentum": 0.9}
RING = {"exchange": {"name": "allreduce", "route": "ring"}}  # as between machines


def mesh(inside: str, settings: dict[str, Any], **strategy: Any) -> dict[str, Any]:
    axes = {"data": GROUPS, inside: {"workers": EACH, **settings}}
    return {"workers": GROUPS * EACH, "partition": {"name": "mesh", "axes": axes}, **strategy}


HYBRID = mesh("hybrid", {"scheme": 2})
SHARDED = {
    "level 1, in one memory": mesh("sharded", {"level": 1}),
    "level 1": mesh("sharded", {"level": 1}, **RING),
    "level 2": mesh("sharded", {"level": 2}, **RING),
    "level 3": mesh("sharded", {"level": 3}, **RING),
}
INSIDE = {"hybrid": HYBRID, **SHARDED}
CASES = [(name, True) for name in INSIDE] + [("hybrid", False), ("level 2", False)]  # with an outer rule, and without
UNUSED = "unused.bias, unused.weight had no gradient on any worker; not updated"


def local(outer: bool, strategy: dict[str, Any], **train: Any) -> Session:
    """41 samples: the last batch of an epoch has one, so that one group has none."""
    consistency = {"name": "local", "period": PERIOD, **({"outer": OUTER} if outer else {})}
    return session(
        "Exact",
        source={"name": "points", "samples": 41},
        optimizer={"name": "sgd", "lr": RATE, "momentum": 0.9},
        train={"steps": STEPS, **train},
        strategy=strategy | {"consistency": consistency} if strategy else {},
    )


def train_both(rank: int, world_size: int) -> dict[tuple[str, bool], Trained]:
    return {
        (name, outer): trained(rank, world_size, local(outer, INSIDE[name]), f"{name}, outer {outer}", disk=Quick())
        for name, outer in CASES
    }


def resume_all(rank: int, world_size: int) -> dict[str, tuple[Trained, Trained]]:
    """Train with each kind of group at once, and once in a run that ends with its second period and is resumed."""
    found = {}
    for name, strategy in INSIDE.items():
        one, folder = local(outer=True, strategy=strategy), f"{name}, resumed"
        at_once = trained(rank, world_size, one, f"{name}, at once", disk=Quick())
        trained(rank, world_size, one, folder, disk=Quick(), until=lambda step: step == 2 * PERIOD)
        found[name] = at_once, trained(rank, world_size, one, folder, disk=Quick())
    return found


@pytest.mark.slow  # fifteen trainings of four workers
def test_groups_that_take_local_steps_are_resumed_bit_for_bit(workers):
    for rank, found in enumerate(workers(GROUPS * EACH, resume_all)):
        for name, (at_once, resumed) in found.items():
            assert [row.step for row in resumed.rows] == list(range(2 * PERIOD + 1, STEPS + 1)), name
            part = part_of(local(outer=True, strategy=INSIDE[name]), rank, GROUPS * EACH)
            for parameter, values in at_once.parameters.items():
                both = [values, resumed.parameters[parameter]]
                if part.scattered is not None:
                    both = [kept(part.holdings, parameter, each) for each in both]
                assert both[0].equal(both[1]), f"{parameter}, {name}, rank {rank}"


def by_hand(*, outer: bool) -> dict[str, Tensor]:
    """Each group updates a copy by the mean over its samples; after a period, an epoch, and the run, the mean of what
    groups have changed, weighted by what they learnt from, is a step of the outer rule.
    """
    it = made(0, 1, local(outer, {}), f"by hand {outer}", disk=Quick())
    network, names = it.flow.module, [name for name, one in it.flow.module.named_parameters()]
    equal = [one.detach().clone() for one in network.parameters()]
    copies = [[one.clone() for one in equal] for _ in range(GROUPS)]
    momenta: list[list[Tensor | None]] = [[None] * len(equal) for _ in range(GROUPS)]
    velocity = [torch.zeros_like(one) for one in equal]
    learnt, since = [0] * GROUPS, 0
    for step in range(STEPS):
        batch = next(it.coordinator.rank.data.feed)
        since += 1
        for group in range(GROUPS):
            rows = torch.tensor([row for row in range(len(batch.inputs)) if row % (GROUPS * EACH) // EACH == group])
            learnt[group] += len(rows)
            if not len(rows):
                continue
            for one, value in zip(network.parameters(), copies[group], strict=True):
                one.data.copy_(value)
            network.zero_grad()
            nn.functional.cross_entropy(network(batch.inputs[rows]), batch.targets[rows]).backward()
            for place, one in enumerate(network.parameters()):
                if one.grad is None:
                    continue
                before = momenta[group][place]
                momenta[group][place] = one.grad if before is None else 0.9 * before + one.grad
                copies[group][place] = copies[group][place] - RATE * momenta[group][place]
        if since == PERIOD or batch.ends_epoch or step == STEPS - 1:
            for place, value in enumerate(equal):
                changed = [copy[place] - value for copy in copies]
                mean = sum(one * count for one, count in zip(changed, learnt, strict=True)) / sum(learnt)
                velocity[place] = 0.9 * velocity[place] - mean
                equal[place] = value - OUTER["lr"] * velocity[place] if outer else value + mean
            copies = [[one.clone() for one in equal] for _ in range(GROUPS)]
            learnt, since = [0] * GROUPS, 0
    return dict(zip(names, equal, strict=True))


def kept(holdings: Holdings, name: str, values: Tensor) -> Tensor:
    """The values, (n,), that a rank keeps of a parameter whose values are with their owners."""
    parts = holdings.kept(Range(name, 0, values.numel()))
    return torch.cat([values.flatten()[part.start : part.end] for part in parts] or [values.new_empty(0)])


def test_groups_with_samples_of_their_own_take_the_local_steps_that_are_written_down(workers, tmp_path, monkeypatch):
    everyone = workers(GROUPS * EACH, train_both)
    monkeypatch.chdir(tmp_path)
    expected = {outer: by_hand(outer=outer) for outer in (True, False)}
    for rank, found in enumerate(everyone):
        for (name, outer), one in found.items():
            part = part_of(local(outer, INSIDE[name]), rank, GROUPS * EACH)
            assert part.holdings.blocks or part.holdings.in_shares, "groups share the network out"
            for parameter, values in expected[outer].items():
                has = one.parameters[parameter]
                if part.scattered is not None:
                    has, values = (kept(part.holdings, parameter, each) for each in (has, values))
                elif parameter in part.holdings.blocks:
                    values = part.holdings.blocks[parameter].taken_from(values)
                where = f"{parameter}, {name}, outer {outer}, rank {rank}"
                torch.testing.assert_close(has, values, rtol=0, atol=1e-12, msg=lambda text, where=where: where + text)
            said = {event["text"] for event in one.events("warning")}
            assert said <= ({UNUSED} if part.holdings.in_shares else set())


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"data": 1, "sharded": 4}, "with consistency=local each worker updates all parameters"),
        ({"data": 1, "hybrid": 4}, "with consistency=local each worker updates all parameters"),
    ],
)
def test_groups_that_cannot_take_local_steps_are_refused(axes, said):
    with pytest.raises(SettingError, match=said):
        local(outer=False, strategy={"workers": 4, "partition": {"name": "mesh", "axes": axes}})


def test_a_step_whose_loss_is_no_number_is_not_left_out_there():
    with pytest.raises(SettingError, match="on_nonfinite is skip, and workers of a group that take local steps"):
        local(outer=False, strategy=HYBRID, on_nonfinite="skip")


def test_a_loop_of_one_s_own_is_refused_local_steps_of_groups_with_samples_of_their_own():
    strategy = {**HYBRID, "consistency": "local"}
    with pytest.raises(SettingError, match="workers of a group that have samples of their own would update within"):
        Script(program="train.py", strategy=strategy)
