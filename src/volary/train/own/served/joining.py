"""A loop of a user's own joins its run's roster and servers, with its first batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.comm.control.store import KeyedStore
from volary.comm.groups.group import LAST_RESORT_S
from volary.errors import Stopped
from volary.server.protocol.hello import WorkerHello
from volary.train.agreement.agreed_plan import describe
from volary.train.own.served.model import FollowedRates
from volary.train.own.served.steps import ServedSteps
from volary.train.served.by_roster import LearningSettings
from volary.train.served.layout import cut_network
from volary.train.served.push_settings import PushSettings
from volary.train.served.server.network_file import HERE, load_values, write_network
from volary.train.worker.connect import admitted
from volary.train.worker.over_servers import ServedWorker, network_facts

if TYPE_CHECKING:
    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.own.served.model import ServedModel
    from volary.train.own.served.portions import LoopPortions
    from volary.train.own.served.turns import Distributing
    from volary.train.recording.recorder import Recorder
    from volary.train.served.layout import Layout
    from volary.train.served.roster_client import RosterClient
    from volary.train.served.saver import RosterSaver


@dataclass(frozen=True, kw_only=True)
class LoopJoining:
    """The parts with which a worker joins the run. facts: what all workers must agree on, besides the network.

    saver: of this worker's files in checkpoints. saves: whether the loop is made to be saved. leaving: whether this
    worker was asked to go.
    """

    script: Script
    member: Membership
    recorder: Recorder
    model: ServedModel
    how: Distributing
    portions: LoopPortions
    facts: Facts
    saver: RosterSaver
    saves: bool
    leaving: Callable[[], bool]

    def join(self) -> ServedSteps:
        """Be let in. Raises Stopped if the run is over, RanksDiffer unless all workers are alike."""
        strategy, rank, portions = self.script.strategy, self.member.place.rank, self.portions
        module, settings = self.model.module, self.model.settings
        self.recorder.starting("waiting for the servers")
        self.recorder.enter("exchange")
        # of gradients that wait for their optimiser's step no factors are kept
        samples = 0 if self.how.waits(strategy.consistency) else portions.epochs.batch_size * self.how.passes
        layout = cut_network(strategy, module, samples, elementwise=settings.elementwise)
        self._share_network(samples, describe(layout.plans, layout.chunk_mb))
        facts = self.facts | network_facts(module, layout)
        groups = enumerate(zip(settings.kinds, settings.groups, strict=True))
        facts |= {f"optimizer, group {number}": f"{kind} {group}" for number, (kind, group) in groups}
        hello = WorkerHello(rank, facts, portions.epochs.samples, 0, "", True, batch_size=portions.epochs.batch_size)
        with ExitStack() as stack:
            work, welcome = stack.enter_context(admitted(self.member, hello, self.leaving))
            if welcome is None:
                raise Stopped("the run is over")
            return self._begun(stack, work, layout, welcome.restore)

    def _share_network(self, samples: int, plan: list[str]) -> None:
        """Servers and all other workers begin with the network of rank 0, and these with its order of samples."""
        member, settings, module = self.member, self.model.settings, self.model.module
        key = member.directory.key()
        with closing(KeyedStore.at(member.host, member.port, key, member.attempt_id, LAST_RESORT_S)) as board:
            if member.place.leads:
                begins = self.portions.begin()
                write_network(member.directory.path, module, settings, samples, plan, begins)
                board.set(HERE, b"")
            else:
                board.wait([HERE])
                self.portions.begin(load_values(module, member.directory.path).order)

    def _begun(self, stack: ExitStack, work: RosterClient, layout: Layout, restore: int | None) -> ServedSteps:
        strategy, member, recorder = self.script.strategy, self.member, self.recorder
        consistency, portions = strategy.consistency, self.portions
        rates = FollowedRates(self.model.optimizers)
        worker = ServedWorker(
            member=member,
            strategy=strategy,
            recorder=recorder,
            module=self.model.module,
            layout=layout,
            pushes=PushSettings(
                passes=consistency.steps() * self.how.passes,
                weight=lambda: steps.weight,
                wait=self.how.waits(consistency),
            ),
            learning=LearningSettings(
                consistency=consistency,
                epochs=portions.epochs,
                seed=None,
                lr=lambda _: rates()[0],
                rates=rates,
            ),
            reader=portions,
            saver=self.saver,
            saves=self.saves and consistency.elastic,
            look=self.script.histograms,
        )
        replica, coordinator = worker.begin(stack, work, restore)
        steps = ServedSteps(stack.pop_all(), work, recorder, replica, coordinator, consistency, self.how)
        return steps
