"""A worker's job in a run with parameter servers: build, be admitted, connect to the servers, train."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from volary.data.datasets.stream import Stream
from volary.data.feed import Feed
from volary.exchange.compression.push_encoding import PushEncoding
from volary.exchange.server import COLOCATED
from volary.naming import named_parameters
from volary.server.protocol.messages import WorkerHello
from volary.train.agreement.agreed_plan import describe
from volary.train.corrupt import teller
from volary.train.device import device_of
from volary.train.loop import Training, train
from volary.train.member.compare import (
    code_facts,
    compare_with_first,
    data_facts,
    setting_facts,
    shape_facts,
    user_objects,
)
from volary.train.model import build_model, readable, update_rule, watch_queue
from volary.train.recording.histograms import Histograms
from volary.train.served.admission import admitted, linked
from volary.train.served.by_roster import ByRoster, LearningSettings
from volary.train.served.colocated import server_beside
from volary.train.served.layout import lay_out
from volary.train.served.portions import SessionPortions
from volary.train.served.replica import ServedReplica, contributions
from volary.train.served.residuals import OwnState, Residuals, Writers, resume
from volary.train.served.saver import RosterSaver
from volary.train.served.server.rule import Clock
from volary.train.state.rank_state import OPTIMIZER, PerWorkerState
from volary.train.state.seeds import seed_all
from volary.train.trial import try_first
from volary.train.uncounted import UncountedLoss
from volary.train.update.local import LocalUpdate
from volary.train.update.precision import Precision, check_precision
from volary.train.update.update import Update
from volary.train.update.whole import WholeUpdate

if TYPE_CHECKING:
    from volary.comm.transports._base import Transport
    from volary.consistency._base import Consistency
    from volary.data.samples import Samples
    from volary.exchange._base import Keeper
    from volary.server.client.link import Link
    from volary.session.spec import Session
    from volary.train.coordinator import Outcome
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.served.layout import Layout
    from volary.train.served.roster_client import RosterClient


def run_served(session: Session, member: Membership, recorder: Recorder, pulse: Pulse) -> Outcome:
    """Train as one of a run's workers. Raises what the user's code raises, and VolaryError."""
    place, strategy = member.place, session.strategy
    beside = strategy.exchange.servers == COLOCATED and place.rank < strategy.workers
    with server_beside(member) if beside else nullcontext():
        device = device_of(session.train.device, place)
        check_precision(session.train.precision, device)
        recorder.starting("building the network")
        seed_all(session.train.seed)
        model = build_model(session, device, member.begun_with)
        try_first(session, model, device, place, recorder)
        layout = lay_out(session, model.module, strategy.servers)
        seed_all(session.train.seed + 1 + place.rank)
        samples, held_back = _indexed(session, model.samples, teller(recorder, "train")), None
        if session.evaluate.every.unit != "never":
            held_back = _indexed(session, model.held_back, teller(recorder, "test"))
        worker = _SessionWorker(session, member, recorder, device, model, layout, samples, held_back)
        facts = worker.facts()
        recorder.starting("waiting for the servers")
        recorder.enter("exchange")
        with admitted(member, worker.hello(facts), lambda: pulse.asked_to_end) as work:
            welcome = work.welcome()
            if welcome is None:
                return work.outcome
            compare_with_first(welcome.facts, facts, place.rank)
            return worker.train(work, welcome.restore)


@dataclass(frozen=True)
class _SessionWorker:
    """What a worker comes with to the roster. held_back: None where nothing is evaluated."""

    session: Session
    member: Membership
    recorder: Recorder
    device: torch.device
    model: Model
    layout: Layout
    samples: Samples
    held_back: Samples | None

    def facts(self) -> Facts:
        """What all workers of the run must agree on."""
        plan = enumerate(describe(self.layout.plans, self.layout.chunk_mb))
        settings = setting_facts((self.member.session or self.session).settings())
        settings.pop("setting optimizer.lr", None)  # it may change while the run trains: the roster says what it is
        code, shapes = code_facts(user_objects(self.session)), shape_facts(self.model.module)
        shapes |= data_facts(self.model.samples)
        return code | settings | shapes | {f"plan, number {place}": chunk for place, chunk in plan}

    def hello(self, facts: Facts) -> WorkerHello:
        """How it is known to the roster."""
        frames = [plan.representation.frames for plan in self.layout.plans]
        return WorkerHello(
            rank=self.member.place.rank,
            facts=facts,
            samples=len(self.samples),
            held_back=0 if self.held_back is None else len(self.held_back),
            metric=self.model.criterion.metric,
            higher_is_better=self.model.criterion.higher_is_better,
            residuals=self._updates or any(one is not None and one.feedback for one in frames),
        )

    def train(self, work: RosterClient, restore: int | None) -> Outcome:
        """What the roster says, to the end of the run. restore: the step of the checkpoint that it resumes from."""
        session, recorder, model = self.session, self.recorder, self.model
        watch_queue(recorder, model.samples)
        feed = Feed(self.samples, session.data.batch_size, shuffle=session.data.shuffle)
        steps = session.train.steps or feed.steps_in(session.train.epochs or 0)
        steps_per_epoch = feed.steps_per_epoch or steps
        recorder.spans.follow(session.train.trace, steps_per_epoch)
        if recorder.leads:
            recorder.note(steps_planned=steps, steps_per_epoch=steps_per_epoch, device=self.device, **model.facts())
        precision = Precision(session.train.precision, self.device)
        update, clock = self._update(precision, steps), Clock.of(session, self.samples)
        # before the replica, whose parameters are waited for when they are read; one worker looks for all
        histograms = Histograms(model.module, recorder, session.train.histograms, lambda: replica.await_all())
        transport, link = linked(session.strategy, self.member, self.layout, work)
        local = LocalUpdate(WholeUpdate(update, recorder), clock.step) if self._updates else None
        with ExitStack() as held:
            residuals = self._residuals(work, restore, update, held.enter_context(closing(Writers())))
            replica = self._replica(transport, link, residuals, work.done, local)
            held.enter_context(closing(replica))
            recorder.starting("doing the first step")
            work.start(link.view, link.fail, replica.residuals)
            flow = model.flow("train")
            coordinator = ByRoster(
                self._learning(update, clock),
                work=work,
                replica=replica,
                recorder=recorder,
                reader=self._reader(),
                held_back=self.held_back,
                flow=flow,
                casting=precision.casting,
                histograms=histograms,
                steps_per_epoch=steps_per_epoch,
            )
            return train(
                Training(
                    flow=flow,
                    evaluating=model.flow("evaluate"),
                    device=self.device,
                    precision=precision,
                    recorder=recorder,
                    replica=replica,
                    coordinator=coordinator,
                    uncounted=UncountedLoss(
                        model.criterion, recorder, session.strategy.workers * session.train.accumulate
                    ),
                )
            )

    @property
    def _updates(self) -> bool:
        """Whether workers update their own parameters."""
        consistency: Consistency = self.session.strategy.consistency
        return consistency.at(0, 0.0).updates

    def _update(self, precision: Precision, steps: int) -> Update:
        build, elementwise = update_rule(self.session)
        named = [(name, one) for name, one in named_parameters(self.model.module) if one.requires_grad]
        return Update(named, self.session.schedule, self.session.train, precision, steps, build, elementwise)

    def _residuals(
        self, work: RosterClient, restore: int | None, update: Update, writers: Writers
    ) -> Callable[[Keeper], Residuals]:
        """This worker's own state, of a keeper's residuals and of an optimiser of its own, if it has one."""
        saver = RosterSaver(self.member, self.session.strategy.workers)

        def made(keeper: Keeper) -> Residuals:
            own = OwnState(keeper, PerWorkerState(OPTIMIZER, update) if self._updates else None)
            resume(own, self.member, restore, self.session.strategy.workers)
            return Residuals(own, saver.write, work.saved, writers.start, kept=self._saves)

        return made

    def _replica(
        self,
        transport: Transport,
        link: Link,
        residuals: Callable[[Keeper], Residuals],
        held: Callable[[int, float], None],
        local: LocalUpdate | None,
    ) -> ServedReplica:
        strategy, settings, layout = self.session.strategy, self.session.train, self.layout
        encoding = PushEncoding(layout.plans, self._warn if settings.on_nonfinite == "skip" else None)
        passes = settings.accumulate * strategy.consistency.steps()
        module = self.model.module
        made = contributions(strategy.consistency, module, layout, passes)
        return ServedReplica(
            strategy, module, layout, self.recorder, link, transport, encoding, residuals, made, held, local
        )

    def _learning(self, update: Update, clock: Clock) -> LearningSettings:
        return LearningSettings(
            consistency=self.session.strategy.consistency,
            batch_size=self.session.data.batch_size,
            seed=self.session.train.seed,
            lr=lambda samples: update.base_lr * clock.factor(samples + 1),
            change_rate=update.change_rate,
            skips=self.session.train.on_nonfinite == "skip",
        )

    def _reader(self) -> SessionPortions:
        data, settings = self.session.data, self.session.train
        return SessionPortions(
            self.samples,
            data.batch_size,
            self.device,
            self.recorder,
            seed=settings.seed,
            shuffle=data.shuffle,
            parts=settings.accumulate,
            counted=self.model.flow("train").counted,
        )

    def _warn(self, text: str) -> None:
        self.recorder.event("warning", text=text)

    @property
    def _saves(self) -> bool:
        """Whether a checkpoint is written before the run's end."""
        best = self.session.checkpoint.keep_best and self.session.evaluate.every.unit != "never"
        return best or self.session.checkpoint.every.unit != "never"


def _indexed(session: Session, samples: Samples | Stream, report: Callable[[int, str], None]) -> Samples:
    samples = readable(session, samples, report)
    assert not isinstance(samples, Stream)  # open_data refuses it
    return samples
