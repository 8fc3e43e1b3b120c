"""The servers and folders that keep a run's parameters and checkpoints, as its driver sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from volary.driver.server_group import NoServers, ServerGroup
from volary.driver.servers.checkpoint_drafts import contributions_in
from volary.driver.servers.roster_and_servers import RosterAndServers
from volary.driver.servers.settings import roster_settings_of
from volary.driver.tasks.task import Task
from volary.engine._base import Engine
from volary.run.checkpoints import Checkpoints
from volary.run.database.journal import Journal
from volary.run.database.kept_contributions import KeptContributions
from volary.run.directory import RunDirectory


@dataclass(frozen=True)
class Storage:
    """The three things that a driver asks of it.

    servers: makes those that keep parameters beside the workers. contributions: those that the newest checkpoint has,
    of workers that number theirs and not the steps of the run. counts: called when a checkpoint counts whose files have
    come from processes that do not see the run's directory.
    """

    servers: Callable[[Journal], ServerGroup] = lambda _: NoServers()
    contributions: Callable[[], KeptContributions | None] = lambda: None
    counts: Callable[[Checkpoints], None] = lambda _: None


def storage_of(directory: RunDirectory, task: Task, engine: Engine) -> Storage:
    """The storage of the task's run. engine: starts its servers."""

    def servers(journal: Journal) -> ServerGroup:
        settings = roster_settings_of(task)
        if settings is None:
            return NoServers(recovers=task.strategy.recover == "memory")
        return RosterAndServers(directory, task, settings, journal, engine)

    def counts(checkpoints: Checkpoints) -> None:
        checkpoints.keep(task.checkpoint.keep_last, keep_best=task.checkpoint.keep_best)

    def contributions() -> KeptContributions | None:
        checkpoints = Checkpoints(directory.checkpoints)
        # of servers perhaps, whatever the run goes on with
        return contributions_in(checkpoints) if checkpoints.steps() else None

    return Storage(servers, contributions, counts)
