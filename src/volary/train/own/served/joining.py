"""A loop of a user's own comes to its run's roster and servers, with its first batch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.comm.control.store import KeyedStore
from volary.comm.groups.group import LAST_RESORT_S
from volary.errors import Stopped
from volary.exchange.compression.push_encoding import PushEncoding
from volary.server.protocol.messages import WorkerHello
from volary.train.agreement.agreed_plan import describe
from volary.train.member.compare import compare_with_first, shape_facts
from volary.train.own.served.model import FollowedRates
from volary.train.own.served.steps import ServedSteps
from volary.train.recording.histograms import Histograms
from volary.train.served.admission import admitted, linked
from volary.train.served.by_roster import ByRoster, LearningSettings
from volary.train.served.layout import cut_network
from volary.train.served.replica import ServedReplica, contributions
from volary.train.served.residuals import OwnState, Residuals, Writers, resume
from volary.train.served.server.network_file import HERE, load_values, write_network

if TYPE_CHECKING:
    from volary.data.sharing.portions import LoaderPortions
    from volary.exchange._base import Keeper
    from volary.session.script import Script
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.own.served.model import ServedModel
    from volary.train.recording.recorder import Recorder
    from volary.train.served.layout import Layout
    from volary.train.served.residuals import Write
    from volary.train.served.roster_client import RosterClient


@dataclass(frozen=True, kw_only=True)
class LoopJoining:
    """What a worker comes with. facts: what all workers must agree on, besides the network.

    write: this worker's files of a checkpoint. saves: whether the loop is made to be saved. leaving: whether the worker
    was asked to go.
    """

    script: Script
    member: Membership
    recorder: Recorder
    model: ServedModel
    portions: LoaderPortions
    facts: Facts
    write: Write
    saves: bool
    leaving: Callable[[], bool]

    def join(self) -> ServedSteps:
        """Be let in. Raises Stopped if the run is over, RanksDiffer unless all workers are alike."""
        strategy, rank, portions = self.script.strategy, self.member.place.rank, self.portions
        module, settings = self.model.module, self.model.settings
        self.recorder.starting("waiting for the servers")
        self.recorder.enter("exchange")
        layout = cut_network(strategy, module, portions.batch_size, strategy.servers, elementwise=settings.elementwise)
        plan = describe(layout.plans, layout.chunk_mb)
        self._share_network(plan)
        facts = self.facts | shape_facts(module) | {f"plan, number {place}": one for place, one in enumerate(plan)}
        facts |= {"optimizer": settings.kind} | {f"optimizer, group {n}": str(g) for n, g in enumerate(settings.groups)}
        hello = WorkerHello(rank, facts, portions.samples, 0, "", True, batch_size=portions.batch_size)
        with ExitStack() as stack:
            work = stack.enter_context(admitted(self.member, hello, self.leaving))
            welcome = work.welcome()
            if welcome is None:
                raise Stopped("the run is over")
            compare_with_first(welcome.facts, facts, rank)
            return self._begun(stack, work, layout, welcome.restore)

    def _share_network(self, plan: list[str]) -> None:
        """Servers and all other workers begin with the network of rank 0, and these with its order of samples."""
        member, settings, module = self.member, self.model.settings, self.model.module
        key = member.directory.key()
        with closing(KeyedStore.at(member.host, member.port, key, member.server_life, LAST_RESORT_S)) as board:
            if member.place.leads:
                begins = self.portions.begin()
                write_network(member.directory.path, module, settings, self.portions.batch_size, plan, begins)
                board.set(HERE, b"")
            else:
                board.wait([HERE])
                self.portions.begin(load_values(module, member.directory.path).order)

    def _begun(self, stack: ExitStack, work: RosterClient, layout: Layout, restore: int | None) -> ServedSteps:
        strategy, member, recorder = self.script.strategy, self.member, self.recorder
        consistency, module, portions = strategy.consistency, self.model.module, self.portions
        transport, link = linked(strategy, member, layout, work)
        writers = stack.enter_context(closing(Writers()))

        def residuals(keeper: Keeper) -> Residuals:
            own = OwnState(keeper, None)
            resume(own, member, restore, strategy.workers)
            return Residuals(own, self.write, work.saved, writers.start, kept=self.saves and consistency.elastic)

        # before the replica, whose parameters are waited for when they are read; one worker looks for all
        histograms = Histograms(module, recorder, self.script.histograms, lambda: replica.await_all())
        replica = ServedReplica(
            strategy,
            module,
            layout,
            recorder,
            link,
            transport,
            PushEncoding(layout.plans, None),
            residuals,
            contributions(consistency, module, layout, passes=consistency.steps(), weight=lambda: steps.weight),
            work.done,
        )
        stack.enter_context(closing(replica))
        rates = FollowedRates(self.model.optimizer)
        learning = LearningSettings(
            consistency=consistency, batch_size=portions.batch_size, seed=None, lr=lambda _: rates()[0], rates=rates
        )
        work.start(link.view, link.fail, replica.residuals)
        coordinator = ByRoster(
            learning,
            work=work,
            replica=replica,
            recorder=recorder,
            reader=portions,
            histograms=histograms,
            steps_per_epoch=-(-portions.samples // portions.batch_size),
        )
        steps = ServedSteps(stack.pop_all(), work, recorder, replica, coordinator, consistency)
        return steps
