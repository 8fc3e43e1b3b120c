"""Puts the four axes together: how replicas stay one model."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from volary.consistency._base import Push
from volary.errors import SettingError
from volary.exchange.gradients.owned import OwnedValues
from volary.exchange.overlap.kept_apart import KeptApart
from volary.train.strategies import idle_settings
from volary.train.strategies.adapting import Adapting
from volary.train.strategies.after_backward import AfterBackward
from volary.train.strategies.averaging.build import elastic, fragmented, gossip, local
from volary.train.strategies.choosing import Chooser
from volary.train.strategies.contribution import StrategySettings, gradients
from volary.train.strategies.overlapping import Overlapping
from volary.train.strategies.single_worker import SingleWorker
from volary.train.strategies.step_settings import StepSettings
from volary.train.update.whole import WholeUpdate

if TYPE_CHECKING:
    from volary.comm.groups.group import Group
    from volary.exchange.gradients.contributions import PushedGradients
    from volary.partition._base import Part
    from volary.session.spec import Strategy
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Voting
    from volary.train.strategies.averaging.local_steps import LocalSteps
    from volary.train.strategies.contribution import ContributionBuffers
    from volary.train.strategies.strategy_state import StrategyState
    from volary.train.update.by_slices import UpdateBySlices
    from volary.train.update.update import Update


def build_strategy(
    strategy: Strategy,
    part: Part,
    recorder: Recorder,
    group: Group,
    update: Update | None,
    *,
    state: StrategyState,
    steps: StepSettings,
    early: UpdateBySlices | None = None,
) -> Voting:
    """The replica of a session's strategy for `part` of a network in `group`. A collective call.

    Raises RanksDiffer, SettingError.
    update: applies agreed gradients; None where a user's own loop does, after `agree`. state: what a checkpoint
    brings and takes. early: without `update`: applies agreed gradients as they arrive, where that can be. A world of
    one worker exchanges nothing.
    """
    if group.size == 1:
        idle = idle_settings.of_one_replica if part.holdings.apart else idle_settings.of_one_worker
        if recorder.leads:
            _warn(recorder, group, state, idle(strategy))
        return SingleWorker(recorder, WholeUpdate(update, recorder))
    warms_up = strategy.codec.at(0) != strategy.codec
    private = update is None or update.changes_gradients
    owned = None
    if part.holdings.in_shares:  # a user's code may change parameters, on each worker
        frees, gathers = part.frees_gradients, part.frees_parameters
        owned = OwnedValues(part.holdings, frees=frees, once=update is not None, gathers=gathers)
    comm_setup = strategy.exchange.comm_setup(group, owned)
    settings = StrategySettings(
        strategy, part.module, recorder, comm_setup, state, private, steps, part.holdings.kept_apart, part.at_once
    )
    if strategy.consistency.pushes is Push.PARAMETERS:
        return gossip(settings, group, WholeUpdate(update, recorder))
    chooser = Chooser(settings, group.bulletin, steps.samples or (lambda: 0), steps.estimate)
    if not strategy.codec.follows:
        _warn(recorder, group, state, idle_settings.of_layers(strategy.codec, chooser.offered()))
    if (part_pulled := strategy.consistency.pull(group.size)) is not None:
        return elastic(settings, chooser.representations(), group, WholeUpdate(update, recorder), part_pulled)
    if strategy.consistency.fragments > 1:
        return fragmented(settings, chooser.representations(), group, WholeUpdate(update, recorder))
    numbers = itertools.count()

    def make() -> Overlapping | AfterBackward | LocalSteps:
        own = group.within(f"plan {next(numbers)}")
        if strategy.consistency.pushes is Push.DIFFERENCE:
            return local(settings, chooser.representations(), own, WholeUpdate(update, recorder))
        apart = KeptApart.of_groups(part.holdings.mesh.groups("data"))
        representations = chooser.representations() | dict.fromkeys(settings.kept_apart, apart)
        return _of(gradients(settings, representations, own), settings, own, update, update or early)

    adapts = strategy.codec.chooses or warms_up
    made = Adapting(chooser, make, own_loop=steps.weight is not None) if adapts else make()
    if owned is not None and owned.frees and comm_setup.shared:
        _warn(recorder, group, state, idle_settings.of_freed_memory(3 if owned.gathers else 2))
    if strategy.codec.follows and comm_setup.shared:
        _warn(recorder, group, state, idle_settings.of_shared_memory(strategy.codec))
    return made


def _warn(recorder: Recorder, group: Group, state: StrategyState, text: str) -> None:
    if text and group.leads and text not in state.warned:
        state.warned.add(text)
        recorder.event("warning", text=text)


def _of(
    contribution: ContributionBuffers[PushedGradients],
    settings: StrategySettings,
    group: Group,
    update: Update | None,
    by_slices: UpdateBySlices | None,
) -> Overlapping | AfterBackward:
    """Make the strategy that waits no longer than it must. by_slices: what updates if chunks can be applied as they
    arrive.
    """
    recorder, module = settings.recorder, settings.module
    at_once = settings.at_once or contribution.why_at_once
    recovers = "a step that a worker is lost in has changed nothing" if settings.strategy.recover == "memory" else ""
    whole = "the loop is your own" if by_slices is None else at_once or by_slices.why_whole or recovers
    if settings.comm_setup.owned is not None:
        alone = "your loop sees all gradients" if by_slices is None else by_slices.why_undivided
        whole = at_once or alone
        if whole:
            raise SettingError(f"a partition whose workers update shares cannot be: {whole}; accepted: partition=data")
    if whole and contribution.keeper.behind:
        raise SettingError(f"exchange.behind applies chunks as they come, but {whole}; accepted: behind=false")
    contribution.record(f"together, since {whole}" if whole else "chunk by chunk, as sums arrive")
    if whole or by_slices is None:
        return AfterBackward(contribution, recorder, WholeUpdate(update, recorder))
    return Overlapping(contribution, module, recorder, group, by_slices)
