"""Puts together local steps of groups, each of which keeps one replica as workers that all keep step do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from volary.codec import ROOM as CODECS
from volary.consistency import ROOM as CONSISTENCIES
from volary.partition._base import trained_sizes
from volary.sharding.groups import SAMPLES
from volary.sharding.holdings import Holdings
from volary.train.strategies.averaging.group_steps import GroupSteps
from volary.train.strategies.averaging.kept_shares import KeptShares
from volary.train.strategies.strategy import build_strategy
from volary.train.strategies.strategy_state import StrategyState

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.partition._base import Part
    from volary.session.spec import Strategy
    from volary.train.recording.recorder import Recorder
    from volary.train.strategies.step_settings import StepSettings
    from volary.train.update.by_slices import UpdateBySlices
    from volary.train.update.update import Update


def steps_of_groups(
    strategy: Strategy,
    part: Part,
    recorder: Recorder,
    everyone: Group,
    update: Update | None,
    *,
    state: StrategyState,
    steps: StepSettings,
    early: UpdateBySlices | None = None,
) -> GroupSteps:
    """The replica of `part` of a network whose groups, of `everyone`, have samples of their own within. As
    `build_strategy`, which see.

    Codecs, and what else `strategy` says of what travels, are of the means of groups.
    """
    mesh, holdings = part.holdings.mesh, part.holdings.of_replica
    inside = everyone.along(mesh, *(axis for axis in SAMPLES if axis != "data"))
    across = everyone.along(mesh, "data")
    together = replace(strategy, consistency=CONSISTENCIES.load("bsp")(), codec=CODECS.load("none")())
    own = replace(part, holdings=holdings)
    within = build_strategy(together, own, recorder, inside, update, state=StrategyState(), steps=steps, early=early)
    shares, module = None, part.module
    if holdings.in_shares:
        shares = KeptShares(part.module, holdings, inside, everyone, within.gathers_anew)
        module, state.outer.lent = shares.module, shares.give_own
    same = Holdings.replicated(trained_sizes(module), across.rank, across.size)
    own = replace(own, module=module, holdings=same)
    between = build_strategy(strategy, own, recorder, across, None, state=state, steps=steps)
    return GroupSteps(within, between, inside, shares)
