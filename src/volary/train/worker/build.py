"""From a session to everything that one worker trains with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from volary.comm.groups.blocking import gather_plain
from volary.consistency.bsp import Bsp
from volary.data.datasets.stream import Stream
from volary.data.feed import Feed
from volary.run.best import Best
from volary.train.corrupt import Corrupt, teller
from volary.train.lockstep import Lockstep
from volary.train.member.requests import RunRequests
from volary.train.model import HeldBack, readable, watch_queue
from volary.train.recording.histograms import Histograms
from volary.train.recording.reads import Reads, tell_dropped
from volary.train.state.progress import Progress
from volary.train.state.rank_state import OPTIMIZER, PRECISION, RESIDUALS, PerWorkerState
from volary.train.state.stateful import RankState, Stateful
from volary.train.strategies.contribution import StepSettings
from volary.train.strategies.strategy import build_strategy
from volary.train.strategies.strategy_state import StrategyState
from volary.train.update.paced import Paced
from volary.train.update.precision import Precision
from volary.train.worker.saver import GroupSaver
from volary.train.worker.session import training, update_of
from volary.train.worker.session_parts import SessionParts

if TYPE_CHECKING:
    import torch

    from volary.comm.groups.group import Group
    from volary.exchange.choice.rows import StepEstimate
    from volary.train.loop import Training
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.state.drafts import Drafts


def assemble(
    model: Model,
    *,
    group: Group,
    device: torch.device,
    recorder: Recorder,
    drafts: Drafts,
    asked_to_end: Callable[[], bool],
    requests: Callable[[], Sequence[Any]] = lambda: (),
    estimate: StepEstimate | None = None,
) -> Training[Lockstep]:
    """Everything that one rank of `group` trains with; nothing of it has been restored yet.

    drafts: where checkpoints are written. requests: those to the run that the driver has passed to this worker.
    estimate: of a step on rank 0, from trying the session.
    """
    session, data = model.session, model.session.data
    length = None if isinstance(model.samples, Stream) else len(model.samples)
    corrupt = Corrupt(length, data.skip_corrupt, recorder, group.bulletin)
    samples = readable(session, model.samples, corrupt.tell)
    watch_queue(recorder, model.samples)
    part = session.strategy.partition.part(model.module, group.rank, group.size)
    replicas = group.along(part.holdings.mesh, "data", "shard")
    seed, rank, ranks = session.train.seed, replicas.rank, replicas.size
    feed = Feed(samples, data.batch_size, rank=rank, world_size=ranks, seed=seed, shuffle=data.shuffle)
    steps = session.train.steps or feed.steps_in(session.train.epochs or 0)
    feed.limit(steps)
    recorder.spans.follow(session.train.trace, feed.steps_per_epoch or steps)
    precision = Precision(session.train.precision, device)
    update = update_of(model, precision, Paced(session.schedule, feed), steps)
    best = Best()
    growth = data.batch.build(feed, recorder)
    state = StrategyState()
    parts: dict[str, Stateful] = {PRECISION: precision, "feed": feed, "best": best, "ways": state}
    consistency = session.strategy.consistency if group.size > 1 else Bsp()
    own: dict[str, RankState] = {RESIDUALS: state}
    optimizer: Stateful = update
    if consistency.at(0, 0.0).updates:
        optimizer = own[OPTIMIZER] = PerWorkerState(OPTIMIZER, update)
        parts[PRECISION] = own[PRECISION] = PerWorkerState(PRECISION, precision)
    replica = build_strategy(
        session.strategy,
        part,
        recorder,
        group,
        update,
        state=state,
        steps=StepSettings(
            passes=session.train.accumulate,
            samples=lambda: feed.given,
            on_nonfinite=session.train.on_nonfinite,
            estimate=estimate.of(data.batch_size / ranks) if estimate else None,
        ),
    )
    saver = SessionParts(
        GroupSaver(drafts, group, recorder, partial(gather_plain, group=group)),
        group.bulletin,
        recorder,
        part,
        optimizer,
        parts | {"corrupt": corrupt} | ({"growth": growth} if growth else {}),
        {**own, **replica.own},
        Progress(feed, best, lambda text: recorder.event("warning", text=text)),
    )
    lockstep = Lockstep(
        session=session,
        group=replicas,
        device=device,
        flow=model.flow("train"),
        feed=feed,
        growth=growth,
        held_back=HeldBack(
            model,
            rank,
            ranks,
            teller(recorder, "test"),
            lambda samples: tell_dropped(samples, "test", recorder),
        ),
        precision=precision,
        update=update,
        replica=replica,
        recorder=recorder,
        saver=saver,
        residuals=state,
        consistency=consistency,
        corrupt=corrupt,
        reads=Reads(model.samples, recorder),
        best=best,
        steps=steps,
        steps_per_epoch=feed.steps_per_epoch or steps,
        asked_to_end=asked_to_end,
        requests=RunRequests(requests, group.bulletin),
        histograms=Histograms(model.module, recorder, session.train.histograms, replica.await_all),
    )
    made = training(
        model,
        recorder,
        replica,
        lockstep,
        flow=lockstep.flow,
        device=device,
        precision=precision,
        workers=ranks,
    )
    return replace(made, learn=part.learn)
