"""Makes of a session everything that one worker trains with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from volary.run.best import Best
from volary.server.roster.plateau import plateau_rule
from volary.train.lockstep.learning import Learning
from volary.train.lockstep.lockstep import Lockstep
from volary.train.lockstep.lockstep_data import LockstepData
from volary.train.member.requests import RunRequests
from volary.train.recording.histograms import Histograms
from volary.train.saving.saver import GroupSaver
from volary.train.state.progress import Progress
from volary.train.state.rank_state import RESIDUALS, STREAMS
from volary.train.state.seeds import seed_all
from volary.train.strategies.step_settings import StepSettings
from volary.train.strategies.strategy_state import STRATEGY, StrategyState
from volary.train.update.swapped import lent_to_all
from volary.train.worker.rank_part import RankPart
from volary.train.worker.session import average_of, trained_network, training
from volary.train.worker.session_parts import AlikeParts, SessionParts

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch

    from volary.comm.groups.group import Group
    from volary.exchange.choice.rows import StepEstimate
    from volary.train.loop import Training
    from volary.train.model import Model
    from volary.train.recording.recorder import Recorder
    from volary.train.replica import Voting
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
    """Put together everything that one rank of `group` trains with; nothing of it has been restored yet.

    drafts: where checkpoints are written. requests: those to the run that the driver has passed to this worker.
    estimate: of a step on rank 0, from trying the session.
    """
    session, own = model.session, RankPart.joined(model, group)
    seed_all(session.train.seed + 1 + own.replicas.rank)
    data = LockstepData(model, own.part.holdings.samples, group.bulletin, recorder)
    recorder.spans.follow(session.train.trace, data.steps_per_epoch)
    consistency = session.strategy.consistency.among(group.size)
    updates_locally, averaging = consistency.at(0, 0.0).updates, average_of(session, data.steps_per_epoch)
    absent, state = own.absent(model, recorder), StrategyState(averaging)
    network = trained_network(
        model,
        device,
        data.steps,
        data.steps_per_epoch,
        feed=data.feed,
        absent=absent,
        averaging=None if updates_locally else averaging,  # else of what all agree on
        averages=averaging is not None,
    )
    best, judged = Best(), {"plateau": network.update.plateau} if plateau_rule(session.schedule) else {}
    steps = _steps(model, data, estimate, own.replicas.size)
    replica = own.replica(session.strategy, recorder, network.update, state, steps)
    rank = own.in_lockstep(session, recorder, data, network, replica)
    saver = SessionParts(
        GroupSaver(drafts, group, recorder),
        recorder,
        own.part,
        network,
        AlikeParts(data.parts(), {"best": best, STRATEGY: state, "outer": state.outer, **judged}),
        {RESIDUALS: state, STREAMS: data.streams, **replica.own},
        Progress(data.feed, best, network.update.plateau, lambda text: recorder.event("warning", text=text)),
        updates_locally=updates_locally,
    )
    asked = RunRequests(requests, group.bulletin, asked_to_end)
    lockstep = Lockstep(
        rank=rank,
        learning=Learning(rank=rank, consistency=consistency, requests=asked, saver=saver),
        saver=saver,
        residuals=state,
        averaged=_averaged(own, replica, state.outer.averaged if updates_locally else network.update.averaged),
        best=best,
        histograms=Histograms(model.module, recorder, session.train.histograms, replica.await_all, own.part.scattered),
        compare=own.compare(session.strategy),
        posted=own.posted(session.strategy, network.update),
    )
    return training(model, recorder, replica, lockstep, network, own.replicas.size, own.part)


def _averaged(
    rank: RankPart, replica: Voting, own: Callable[[], AbstractContextManager[None]]
) -> Callable[[], AbstractContextManager[None]]:
    """A function that lends the network its average. own: of this rank's updated values. A collective call."""
    holdings = rank.part.holdings
    if not holdings.in_shares:
        return own
    group = rank.everyone.along(holdings.mesh, "shard")  # a replica
    return partial(lent_to_all, own, rank.part.module, holdings.of_replica, group, replica.gathers_anew)


def _steps(model: Model, data: LockstepData, estimate: StepEstimate | None, shares: int) -> StepSettings:
    session = model.session
    return StepSettings(
        passes=session.train.accumulate,
        samples=lambda: data.feed.given,
        on_nonfinite=session.train.on_nonfinite,
        estimate=estimate.of(session.data.batch_size / shares) if estimate else None,
    )
