"""A run's settings of its servers: how many there are, where they start, and what their roster needs."""

from __future__ import annotations

import socket
import sys
from typing import Any

from volary.consistency._base import Push
from volary.engine._base import Launch
from volary.run.directory import RunDirectory
from volary.run.launch.meeting import Meeting
from volary.server.batch_methods.lbfgs import LbfgsSettings
from volary.server.roster.plateau import plateau_rule
from volary.server.roster.settings import RosterSettings
from volary.session.changing import thaws_at
from volary.session.script import Script
from volary.session.spec import MOST_STEPS, Session, Strategy

SERVER = [sys.executable, "-m", "volary.serving"]


def is_elastic(strategy: Strategy) -> bool:
    """Whether workers may come and go in a run of this strategy."""
    return bool(strategy.servers and strategy.consistency.elastic)


def are_colocated(strategy: Strategy) -> bool:
    """Whether workers start the servers, each one beside itself."""
    return bool(strategy.servers and isinstance(strategy.exchange.servers, str))


def servers_to_start(strategy: Strategy) -> int:
    """Return how many servers the engine starts: none that workers start beside themselves."""
    return 0 if are_colocated(strategy) else strategy.servers


def keeper_host(strategy: Strategy) -> str:
    """The host of the roster and of servers beside it, which keep the parameters; empty if each worker does."""
    return socket.gethostname() if strategy.servers else ""


def launch_of_servers(directory: RunDirectory, strategy: Strategy, meeting: Meeting) -> Launch | None:
    """All servers of a run, for its engine; None if there are none, or workers start them."""
    if not (count := servers_to_start(strategy)):
        return None
    return Launch(
        role="server",
        directory=directory,
        command=SERVER,
        count=count,
        meeting=meeting,
        beside=strategy.workers,
        interface=strategy.interface,
    )


def roster_settings_of(task: Session | Script) -> RosterSettings | None:
    """The settings that the roster needs of a session or a script; None if there are no servers, and so no roster."""
    if not task.strategy.servers:
        return None
    return roster_settings_of_loop(task.strategy) if isinstance(task, Script) else roster_settings(task)


def roster_settings(session: Session) -> RosterSettings:
    """The settings of a session that the roster needs."""
    strategy, train = session.strategy, session.train
    return RosterSettings(
        workers=strategy.shares,
        each=strategy.ranks_each,
        servers=strategy.servers,
        replicas=strategy.exchange.replicas,
        give_up_after_s=strategy.give_up_after_s,
        batch_size=session.data.batch_size,
        steps=lambda per_epoch: train.steps or max(1, round((train.epochs or 0) * per_epoch)),
        evaluate_every=session.evaluate.every.in_steps,
        write_every=session.evaluate.text_period.in_steps,
        checkpoint_every=session.checkpoint.every.in_steps,
        patience=session.evaluate.patience,
        skip_corrupt=session.data.skip_corrupt,
        keep_best=session.checkpoint.keep_best,
        clip_norm=train.clip_norm if strategy.consistency.pushes is Push.GRADIENT else None,  # else workers clip
        plateau=plateau_rule(session.schedule),
        stops=train.stop_at.passes,
        thaws=lambda per_epoch: thaws_at(train.freeze, per_epoch),
        lbfgs=_lbfgs(session.optimizer) if getattr(session.optimizer, "by_vectors", False) else None,
    )


def _lbfgs(optimizer: Any) -> LbfgsSettings:
    """Settings of the roster, which coordinates an optimiser of vectors."""
    return LbfgsSettings(
        history_size=optimizer.history_size,
        tolerance_grad=optimizer.tolerance_grad,
        searches=optimizer.line_search != "none",
    )


def roster_settings_of_loop(strategy: Strategy) -> RosterSettings:
    """The same of a loop of one's own: its workers say how large a batch is, and it ends when they do."""
    return RosterSettings(
        workers=strategy.workers,
        servers=strategy.servers,
        replicas=strategy.exchange.replicas,
        give_up_after_s=strategy.give_up_after_s,
        batch_size=1,
        steps=lambda _: MOST_STEPS,
        evaluate_every=lambda _: None,
        checkpoint_every=lambda _: None,
        keep_best=False,
    )
