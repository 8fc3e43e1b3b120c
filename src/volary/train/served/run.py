"""A worker's job in a run with parameter servers: build, be admitted, connect to the servers, train."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

import torch

from volary.data.datasets.stream import Stream
from volary.data.feed import Feed
from volary.exchange.compression.push_encoding import PushEncoding
from volary.exchange.server import COLOCATED
from volary.run.checkpoints import Checkpoints
from volary.server.protocol.messages import WorkerHello
from volary.train.agreement.agreed_plan import describe
from volary.train.assemble import build_model, readable, update_rule, watch_queue
from volary.train.corrupt import teller
from volary.train.device import device_of
from volary.train.loop import Training, train
from volary.train.member.compare import code_facts, compare_with_first, setting_facts, shape_facts, user_objects
from volary.train.member.remote_directory import writer
from volary.train.recording.histograms import Histograms
from volary.train.served.admission import admitted, linked
from volary.train.served.by_roster import ByRoster, LearningSettings
from volary.train.served.colocated import server_beside
from volary.train.served.layout import lay_out
from volary.train.served.portions import SessionPortions
from volary.train.served.replica import ServedReplica, contributions
from volary.train.served.residuals import OwnState, Residuals, Write, Writers, resume
from volary.train.served.server.rule import Clock
from volary.train.state.rank_state import OPTIMIZER, PerWorkerState, rank_file
from volary.train.state.seeds import seed_all
from volary.train.state.state_file import state_content
from volary.train.trial import try_first
from volary.train.update.local import LocalUpdate
from volary.train.update.precision import Precision, check_precision
from volary.train.update.update import Update
from volary.train.update.whole import WholeUpdate

if TYPE_CHECKING:
    from volary.consistency._base import Consistency
    from volary.data.samples import Samples
    from volary.exchange._base import Keeper
    from volary.session.spec import Session
    from volary.train.assemble import Model
    from volary.train.coordinator import Outcome
    from volary.train.member.compare import Facts
    from volary.train.member.process import Membership
    from volary.train.member.pulse import Pulse
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
        model = build_model(session, device)
        try_first(session, model, device, place, recorder)
        layout = lay_out(session, model.module, strategy.servers)
        seed_all(session.train.seed + 1 + place.rank)
        samples, held_back = _indexed(session, model.samples, teller(recorder, "train")), None
        if session.evaluate.every.unit != "never":
            held_back = _indexed(session, model.held_back, teller(recorder, "test"))
        facts = _facts(member, session, model, layout)
        recorder.starting("waiting for the servers")
        recorder.enter("exchange")
        hello = _hello(member, model, layout, facts, samples, held_back)
        with admitted(member, hello, lambda: pulse.asked_to_end) as work:
            welcome = work.welcome()
            if welcome is None:
                return work.outcome
            compare_with_first(welcome.facts, facts, place.rank)
            restore = welcome.restore
            return _train(session, member, recorder, device, model, layout, restore, samples, held_back, work)


def _train(
    session: Session,
    member: Membership,
    recorder: Recorder,
    device: torch.device,
    model: Model,
    layout: Layout,
    restore: int | None,
    samples: Samples,
    held_back: Samples | None,
    work: RosterClient,
) -> Outcome:
    rank = member.place.rank
    watch_queue(recorder, model.samples)
    consistency = session.strategy.consistency
    transport, link = linked(session.strategy, member, layout, work)
    feed = Feed(samples, session.data.batch_size, shuffle=session.data.shuffle)
    steps = session.train.steps or feed.steps_in(session.train.epochs or 0)
    recorder.spans.follow(session.train.trace, feed.steps_per_epoch or steps)
    if rank == 0:
        facts = {"steps_planned": steps, "steps_per_epoch": feed.steps_per_epoch or steps, "device": device}
        recorder.note(**facts, **model.facts())
    precision = Precision(session.train.precision, device)
    build, elementwise = update_rule(session)
    named = [(name, one) for name, one in model.module.named_parameters() if one.requires_grad]
    update = Update(named, session.schedule, session.train, precision, steps, build, elementwise)
    writers, encoding = Writers(), _encoding(session, recorder, layout)
    clock = Clock.of(session, samples)
    local = LocalUpdate(WholeUpdate(update, recorder), clock.step) if _updates(session) else None

    def residuals(keeper: Keeper) -> Residuals:
        own = OwnState(keeper, PerWorkerState(OPTIMIZER, update) if local is not None else None)
        resume(own, member, restore, session.strategy.workers)
        return Residuals(own, _writer(member), work.saved, writers.start, kept=_saves(session))

    passes = session.train.accumulate * consistency.steps()
    made = contributions(consistency, model.module, layout, passes)
    # before the replica, whose parameters are waited for when they are read; one worker looks for all
    histograms = Histograms(
        model.module, recorder, session.train.histograms, lambda: replica.await_all(), wanted=rank == 0
    )
    replica = ServedReplica(
        session.strategy, model.module, layout, recorder, link, transport, encoding, residuals, made, work.done, local
    )
    recorder.starting("doing the first step")
    with closing(writers), closing(replica):
        work.start(link.view, link.fail, replica.residuals)
        flow = model.flow("train")
        coordinator = ByRoster(
            _learning(session, clock, update),
            work=work,
            replica=replica,
            recorder=recorder,
            reader=SessionPortions(
                samples,
                session.data.batch_size,
                device,
                recorder,
                seed=session.train.seed,
                shuffle=session.data.shuffle,
                parts=session.train.accumulate,
            ),
            held_back=held_back,
            flow=flow,
            casting=precision.casting,
            histograms=histograms,
            steps_per_epoch=feed.steps_per_epoch or steps,
        )
        return train(
            Training(
                flow=flow,
                evaluating=model.flow("evaluate"),
                device=device,
                precision=precision,
                recorder=recorder,
                replica=replica,
                coordinator=coordinator,
            )
        )


def _updates(session: Session) -> bool:
    """Whether workers update their own parameters."""
    consistency: Consistency = session.strategy.consistency
    return consistency.at(0, 0.0).updates


def _learning(session: Session, clock: Clock, update: Update) -> LearningSettings:
    """clock: of the learning rate. update: of this worker's own parameters."""
    return LearningSettings(
        consistency=session.strategy.consistency,
        batch_size=session.data.batch_size,
        seed=session.train.seed,
        lr=lambda samples: update.base_lr * clock.factor(samples + 1),
        change_rate=update.change_rate,
        skips=session.train.on_nonfinite == "skip",
    )


def _encoding(session: Session, recorder: Recorder, layout: Layout) -> PushEncoding:
    def warn(text: str) -> None:
        recorder.event("warning", text=text)

    return PushEncoding(layout.plans, warn if session.train.on_nonfinite == "skip" else None)


def _writer(member: Membership) -> Write:
    """Writes what is a worker's own to the draft of a step's checkpoint."""
    name, write = rank_file(member.place.rank), writer(member.remote, Checkpoints(member.directory.checkpoints))
    return lambda step, state, _: {name: write(step, name, state_content(state))}


def _saves(session: Session) -> bool:
    """Whether a checkpoint is written before the run's end."""
    best = session.checkpoint.keep_best and session.evaluate.every.unit != "never"
    return best or session.checkpoint.every.unit != "never"


def _hello(
    member: Membership, model: Model, layout: Layout, facts: Facts, samples: Samples, held_back: Samples | None
) -> WorkerHello:
    return WorkerHello(
        rank=member.place.rank,
        facts=facts,
        samples=len(samples),
        held_back=0 if held_back is None else len(held_back),
        metric=model.criterion.metric,
        higher_is_better=model.criterion.higher_is_better,
        residuals=_updates(model.session)
        or any(plan.representation.frames is not None and plan.representation.frames.feedback for plan in layout.plans),
    )


def _facts(member: Membership, session: Session, model: Model, layout: Layout) -> Facts:
    """What all workers of the run must agree on."""
    plan = {f"plan, number {place}": chunk for place, chunk in enumerate(describe(layout.plans, layout.chunk_mb))}
    settings = setting_facts((member.session or session).settings())
    settings.pop("setting optimizer.lr", None)  # it may change while the run trains: the roster says what it is
    return code_facts(user_objects(session)) | settings | shape_facts(model.module) | plan


def _indexed(session: Session, samples: Samples | Stream, report: Callable[[int, str], None]) -> Samples:
    samples = readable(session, samples, report)
    assert not isinstance(samples, Stream)  # open_data refuses it
    return samples
