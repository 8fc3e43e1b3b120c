"""The part of a run that one rank has: of the network, of the samples, and in the groups that it is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from volary.comm.groups.layer_group import LayerGroup
from volary.comm.groups.leading import from_leader
from volary.consistency._base import Push
from volary.sharding.groups import REPLICA, SAMPLES
from volary.train.agreement.in_parts import InParts, one_vote
from volary.train.lockstep.rank import LockstepRank
from volary.train.recovery.posted_shares import PostedShares, posted_shares
from volary.train.state.replicas import compare_replicas
from volary.train.strategies.in_groups import steps_of_groups
from volary.train.strategies.strategy import build_strategy
from volary.train.worker.batch_norms import synchronised_norms

if TYPE_CHECKING:
    from torch import Tensor

    from volary.comm.groups.group import Group
    from volary.comm.groups.layer_group import PartGroup
    from volary.partition._base import Part
    from volary.session.spec import Session, Strategy
    from volary.train.lockstep.lockstep_data import LockstepData
    from volary.train.model import Model, TrainedNetwork
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Voting
    from volary.train.strategies.step_settings import StepSettings
    from volary.train.strategies.strategy_state import StrategyState
    from volary.train.trial import TrialResult
    from volary.train.update.by_slices import UpdateBySlices
    from volary.train.update.update import Update


@dataclass(frozen=True)
class RankPart:
    """everyone: all ranks of the run. replicas: those of this rank's part, which have samples of their own. layers: the
    ranks that hold this rank's replica with it; None: it holds one alone.
    """

    part: Part
    everyone: Group
    replicas: Group
    layers: PartGroup | None

    @classmethod
    def joined(cls, model: Model, group: Group) -> RankPart:
        """This rank's part, of which alone it has the parameters from now on. A collective call.

        Raises SettingError if the network cannot be cut as its session says.
        """
        partition = model.session.strategy.partition
        planned = from_leader(
            group.bulletin, "partition", lambda: partition.planned(model.module, group.size, model.some_inputs)
        )
        return cls.of(replace(partition, **planned).part(model.module, group.rank, group.size), group)

    @classmethod
    def of(cls, part: Part, group: Group) -> RankPart:
        """This rank's `part`, which it joins. A collective call."""
        mesh = part.holdings.mesh
        replicas, layers = group.along(mesh, *SAMPLES), None
        if part.join is not None:  # which communicates while another thread sends what replicas exchange
            own = group if group.size == 1 else group.divided(mesh.groups(*REPLICA))
            layers = part.join(own)
        return cls(part, group, replicas, None if layers is None or layers.group.size == 1 else layers)

    def in_lockstep(
        self,
        session: Session,
        recorder: Recorder,
        data: LockstepData,
        network: TrainedNetwork,
        replica: Voting,
    ) -> LockstepRank:
        """Return what this rank trains with among ranks that keep step."""
        return LockstepRank(
            session=session,
            counts=self.part.holdings.together[0] == self.everyone.rank,
            alone=self.layers is None and (self.everyone.size == 1 or not session.train.sync_batch_norm),
            group=self.replicas,
            data=data,
            network=network,
            replica=replica,
            recorder=recorder,
            in_groups=self.updates_in_groups(session.strategy),
        )

    def absent(self, model: Model, recorder: Recorder) -> Callable[[], Tensor] | None:
        """Return what a rank without a sample does in a step; see `volary.network.flow.Flow`. A collective call.

        If the session says so, batch norms of the model go by the samples of all ranks from now on.
        """
        if self.everyone.size > 1 and model.session.train.sync_batch_norm:
            return synchronised_norms(model, self.everyone, recorder)
        return self.part.absent

    def compare(self, strategy: Strategy) -> Callable[[int], None] | None:
        """The comparison of all that should be equal at a step; None: nothing should be."""
        # of stages that differ nothing is equal
        group = self.replicas if self.part.holdings.mesh.pipeline > 1 else self.everyone
        if group.size == 1 or not strategy.replicas_equal:
            return None
        return partial(compare_replicas, self.part.module, group=group, holdings=self.part.holdings)

    def posted(self, strategy: Strategy, update: Update) -> PostedShares | None:
        """Make what gives copies of this rank's share to another; None: nobody needs them. A collective call."""
        return posted_shares(self.everyone, self.part, update) if strategy.posts_shares else None

    def replica(
        self,
        strategy: Strategy,
        recorder: Recorder,
        update: Update | None,
        state: StrategyState,
        steps: StepSettings,
        early: UpdateBySlices | None = None,
    ) -> Voting:
        """Make what exchanges with the replicas, and updates this part. A collective call. Raises as `build_strategy`.

        update, early: as of that.
        """
        recorder.part = self.part.place
        if self.layers is not None:
            if isinstance(self.layers, LayerGroup):
                self.layers.waiting = recorder.waiting
            if update is not None:
                update.hold_parts(self.part.holdings, self.layers)
        if self.part.notes and self.everyone.leads:
            recorder.note(**self.part.notes)
            recorder.event("exchange", **self.part.notes)
        if self.updates_in_groups(strategy):
            own: Voting = steps_of_groups(
                strategy, self.part, recorder, self.everyone, update, state=state, steps=steps, early=early
            )
            return own if self.layers is None else InParts(own, self.layers)
        own = build_strategy(
            strategy, self.part, recorder, self.replicas, update, state=state, steps=steps, early=early
        )
        if self.layers is None:
            return own
        return InParts(own, self.layers, one_vote if self.replicas.size < self.everyone.size else None)

    def updates_in_groups(self, strategy: Strategy) -> bool:
        """Whether workers with samples of their own take local steps together, this one among them."""
        mesh = self.part.holdings.mesh
        return strategy.consistency.pushes is Push.DIFFERENCE and mesh.shares > mesh.data


def with_partition(model: Model, tried: TrialResult | None, group: Group) -> Model:
    """The same, whose session names the partition that rank 0 chose, if it is to be chosen. A collective call."""
    strategy = model.session.strategy
    if not strategy.partition.chooses:
        return model

    def choice() -> Any:
        assert tried is not None and tried.predicted is not None, "rank 0 has tried it, and chosen"
        return tried.predicted.own.partition

    named = replace(strategy, partition=from_leader(group.bulletin, "chosen partition", choice))
    return replace(model, session=replace(model.session, strategy=named))
