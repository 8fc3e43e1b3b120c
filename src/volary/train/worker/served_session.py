"""A session's worker in a run with parameter servers: build, be admitted, connect to the servers, train."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volary.server.protocol.hello import WorkerHello
from volary.server.protocol.to_members import Rate
from volary.train.loop import train
from volary.train.member.compare import data_facts
from volary.train.served.by_roster import LearningSettings, SessionFlow
from volary.train.served.push_settings import PushSettings
from volary.train.served.saver import RosterSaver
from volary.train.served.served_data import ServedData
from volary.train.state.rank_state import OPTIMIZER, PerWorkerState
from volary.train.state.seeds import seed_all
from volary.train.update.local import LocalUpdate
from volary.train.update.whole import WholeUpdate
from volary.train.worker.connect import admitted, server_beside
from volary.train.worker.over_servers import ServedWorker
from volary.train.worker.served_part import ServedPart
from volary.train.worker.session import device_for, new_model, run_facts, trained_network, training

if TYPE_CHECKING:
    import torch

    from volary.session.spec import Session
    from volary.train.coordinator import Outcome
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.served.roster_client import RosterClient
    from volary.train.update.update import Update


def run_served(session: Session, member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Train as one of a run's workers. Raises what the user's code raises, and VolaryError."""
    place, each = member.place, session.strategy.ranks_each
    with ExitStack() as held:
        held.enter_context(server_beside(member, session.strategy))
        device = device_for(session, place)
        model, _ = new_model(session, device, member, recorder)
        saver = RosterSaver(member, session.strategy.workers)
        step, thawed = saver.thaw(model)
        if recorder.leads and thawed:
            recorder.event_of(step, "thawed", {"parameters": thawed})
        part = ServedPart.of(held, member, recorder, device, model)
        seed_all(session.train.seed + 1 + place.rank // each)
        worker = _SessionWorker(member, recorder, device, model, part, ServedData(model, recorder), saver)
        recorder.starting("waiting for the servers")
        recorder.enter("exchange")
        admission = admitted(member, worker.hello(), lambda: pulse.asked_to_end, leads=part.leads)
        work, welcome = held.enter_context(admission)
        return work.outcome if welcome is None else worker.train(work, welcome.restore)


@dataclass(frozen=True)
class _SessionWorker:
    """A worker as it comes to the roster."""

    member: Membership
    recorder: Recorder
    device: torch.device
    model: Model
    part: ServedPart
    data: ServedData
    saver: RosterSaver

    def hello(self) -> WorkerHello:
        """How it is known to the roster."""
        frames = [plan.representation.frames for plan in self.part.layout.plans]
        return WorkerHello(
            rank=self.member.place.rank,
            facts=self._facts(),
            samples=len(self.data.samples),
            validation=0 if self.data.validation is None else len(self.data.validation),
            metric=self.model.criterion.metric,
            higher_is_better=self.model.criterion.higher_is_better,
            residuals=self._updates or any(one is not None and one.feedback for one in frames),
        )

    def train(self, work: RosterClient, restore: int | None) -> Outcome:
        """Do what the roster says, to the end of the run. restore: the step of the checkpoint that it resumes from."""
        session, recorder, model, data = self.model.session, self.recorder, self.model, self.data
        recorder.spans.follow(session.train.trace, data.clock.epochs.steps)
        if recorder.leads:
            length = {"steps_planned": data.clock.steps, "steps_per_epoch": data.clock.epochs.steps}
            recorder.note(**length, device=self.device, **model.facts())
        network = trained_network(model, self.device, data.clock.steps, data.clock.epochs.steps)
        update = network.update
        worker = ServedWorker(
            member=self.member,
            strategy=session.strategy,
            recorder=recorder,
            module=model.module,
            layout=self.part.layout,
            pushes=PushSettings(
                passes=session.train.accumulate * session.strategy.consistency.steps(),
                skips=session.train.on_nonfinite == "skip",
                update=LocalUpdate(WholeUpdate(update, recorder), data.clock.step) if self._updates else None,
                parts=self.part.parts,
            ),
            learning=self._learning(update),
            reader=data.reader(network),
            saver=self.saver,
            saves=self._saves,
            look=session.train.histograms,
            own={OPTIMIZER: PerWorkerState(OPTIMIZER, update)} if self._updates else {},
            flow=SessionFlow(network.flow, network.precision.casting, data.validation, data.called),
        )
        with ExitStack() as held:
            replica, coordinator = worker.begin(held, work, restore)
            part, replicas = None if self.part.parts is None else self.part.parts.part, session.strategy.shares
            return train(training(model, recorder, replica, coordinator, network, replicas, part))

    def _facts(self) -> Facts:
        """The facts that all workers of the run must agree on."""
        facts = run_facts(self.model.session, self.member)
        facts.pop("setting optimizer.lr", None)  # it may change while the run trains: the roster says what it is
        return facts | data_facts(self.model.samples) | self.part.plan

    @property
    def _updates(self) -> bool:
        """Whether workers update their own parameters."""
        return bool(self.model.session.strategy.consistency.at(0, 0.0).updates)

    @property
    def _saves(self) -> bool:
        """Whether a checkpoint is written before the run's end."""
        session = self.model.session
        best = session.checkpoint.keep_best and session.evaluate.every.unit != "never"
        return best or session.checkpoint.every.unit != "never"

    def _learning(self, update: Update) -> LearningSettings:
        session, clock = self.model.session, self.data.clock

        def change_rate(rate: Rate) -> None:
            update.plateau.factor = rate.factor
            if rate.lr is not None:
                update.change_rate(rate.lr)

        return LearningSettings(
            consistency=session.strategy.consistency,
            epochs=clock.epochs,
            replica=self.member.place.rank // session.strategy.ranks_each,
            leads=self.part.leads,
            leaves=self.part.parts is None,
            seed=session.train.seed,
            lr=lambda samples: update.base_lr * clock.factor(samples + 1) * update.plateau.factor,
            change_rate=change_rate,
            skips=session.train.on_nonfinite == "skip",
        )
