"""Follow a run as the terminal that began it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@arguments.trust
@arguments.quiet
@arguments.as_json
@arguments.log
def attach(run: RunDirectory, trust: bool, quiet: bool, as_json: bool, log: tuple[str, ...]) -> int:
    """Follow RUN again, in the queue of its cluster or wherever it trains, as the terminal does that began it.

    Ctrl-C once lets it finish the step and write a checkpoint; twice stops it now. Closing the terminal does neither.
    """
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.cli.command.ending import conclude, console
    from volary.driver.queued import follow
    from volary.loggers.copying.beside import logged_beside

    with logged_beside(console(quiet, as_json), log) as watcher:
        return conclude(follow(run, watcher), as_json)
