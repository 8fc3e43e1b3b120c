"""Makes the replicas of which each worker updates its own. Collective calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from volary.train.strategies.averaging.elastic_steps import ElasticSteps
from volary.train.strategies.averaging.fragmented_steps import FragmentedSteps
from volary.train.strategies.averaging.gossip_steps import GossipSteps
from volary.train.strategies.averaging.local_steps import LocalSteps
from volary.train.strategies.contribution import differences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from volary.comm.groups.group import Group
    from volary.exchange.representations._base import Representation
    from volary.train.strategies.contribution import StrategySettings
    from volary.train.update.whole import WholeUpdate


def local(
    settings: StrategySettings, representations: Mapping[str, Representation], group: Group, update: WholeUpdate
) -> LocalSteps:
    """Copies that become equal after each period. Raises SettingError for an outer rule that needs whole tensors."""
    consistency = settings.strategy.consistency
    outer = settings.state.outer.of(settings.module, consistency)
    made = LocalSteps(differences(settings, representations, group), settings, update, outer)
    taken = "their mean is taken" if consistency.outer is None else "the outer rule steps by their mean"
    when = "while the next steps are computed" if settings.comm_setup.behind else "before the next step"
    made.contribution.record(f"by each worker; {taken} {when}")
    return made


def fragmented(
    settings: StrategySettings, representations: Mapping[str, Representation], group: Group, update: WholeUpdate
) -> FragmentedSteps:
    """Copies whose fragments are exchanged in turn. Raises SettingError for more than layers, and as `local`."""
    outer = settings.state.outer.of(settings.module, settings.strategy.consistency)
    made = FragmentedSteps(settings, representations, group, update, outer)
    when = "while the next steps are computed" if settings.comm_setup.behind else "before the next step"
    made.record(f"by each worker; one of {settings.strategy.consistency.fragments} fragments is exchanged {when}")
    return made


def gossip(settings: StrategySettings, group: Group, update: WholeUpdate) -> GossipSteps:
    """Copies that become the mean of their own and their partners'."""
    made = GossipSteps(settings, group, update)
    when = "under the next step" if settings.comm_setup.behind else "before the next step"
    made.contribution.record(f"by each worker; the mean with partners is taken {when}")
    return made


def elastic(
    settings: StrategySettings,
    representations: Mapping[str, Representation],
    group: Group,
    update: WholeUpdate,
    part: float,
) -> ElasticSteps:
    """Copies around a centre. part: see `ElasticSteps`."""
    made = ElasticSteps(settings, representations, group, update, part)
    made.contribution.record("by each worker; the centre moves by what all pull")
    return made
