"""Puts together a worker over servers, whoever owns its loop: its replica, and the roster as its coordinator."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from volary.comm.groups.group import cut
from volary.train.agreement.agreed_plan import describe
from volary.train.member.compare import shape_facts
from volary.train.recording.histograms import Histograms
from volary.train.served.by_roster import ByRoster
from volary.train.served.centre import Centre
from volary.train.served.replica import ServedReplica
from volary.train.served.residuals import Residuals, WorkerState, Writers, resume
from volary.train.state.rank_state import PARAMETERS, FirstModel
from volary.train.worker.connect import linked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import ExitStack

    from torch import nn

    from volary.exchange._base import Keeper
    from volary.session.spec import Strategy
    from volary.session.values.period import Period
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.recording.recorder import Recorder
    from volary.train.served.by_roster import LearningSettings, SessionFlow
    from volary.train.served.layout import Layout
    from volary.train.served.portions import PortionReader
    from volary.train.served.push_settings import PushSettings
    from volary.train.served.roster_client import RosterClient
    from volary.train.served.saver import RosterSaver
    from volary.train.state.stateful import RankState


def network_facts(module: nn.Module, layout: Layout) -> Facts:
    """Facts of the network, and of how it is cut, that all workers must agree on."""
    plan = enumerate(describe(layout.plans, layout.chunk_mb))
    return shape_facts(module) | {f"plan, number {place}": chunk for place, chunk in plan}


@dataclass(frozen=True, kw_only=True)
class ServedWorker:
    """The parts of a worker that has been let in.

    saver: of its files in checkpoints; saves: any checkpoint but the last may be asked for. own: what it alone has,
    as its optimiser, by name. look: how often the first worker looks at weights, gradients and updates. flow: where
    the loop is not the user's.
    """

    member: Membership
    strategy: Strategy
    recorder: Recorder
    module: nn.Module
    layout: Layout
    pushes: PushSettings
    learning: LearningSettings
    reader: PortionReader
    saver: RosterSaver
    saves: bool
    look: Period
    own: Mapping[str, RankState] = field(default_factory=dict)
    flow: SessionFlow | None = None

    def begin(self, held: ExitStack, work: RosterClient, restore: int | None) -> tuple[ServedReplica, ByRoster]:
        """Take the first task of the roster. held: what ends with the worker is put there.

        restore: the step of the checkpoint that the run resumes from.
        """
        transport, link = linked(self.strategy, self.member, self.layout, work)
        writers = held.enter_context(closing(Writers()))
        pushes, layout, parts = self.pushes, self.layout, self.own
        if (part := self.strategy.consistency.pull(self.strategy.workers)) is not None:
            centre = Centre(self.module, part, self.strategy.workers)
            pushes, layout = replace(pushes, centre=centre), centre.beside(layout)
            parts = {**parts, PARAMETERS: centre if self.flow is not None else FirstModel(PARAMETERS, centre)}

        def residuals(keeper: Keeper) -> Residuals:
            own = WorkerState(keeper, parts)
            resume(own, self.member, restore, self.strategy.workers)
            kept, drops = self.saves, self.strategy.consistency.drops
            return Residuals(own, self.saver.write, work.saved, writers.start, kept=kept, drops=drops)

        # before the replica, whose parameters are waited for when they are read
        histograms = Histograms(self.module, self.recorder, self.look, lambda: replica.await_all())
        replica = ServedReplica(
            self.strategy, self.module, layout, self.recorder, (transport, link), pushes, residuals, work.done
        )
        held.enter_context(closing(replica))
        self.recorder.starting("doing the first step")
        # whoever waits for one that held the same replica is not to wait any more
        ends = (lambda _: cut()) if self.pushes.parts is not None else (lambda _: None)
        work.start(link.view, link.fail, replica.residuals, ends)
        coordinator = ByRoster(
            self.learning,
            work=work,
            replica=replica,
            recorder=self.recorder,
            reader=self.reader,
            histograms=histograms,
            session=self.flow,
        )
        return replica, coordinator
