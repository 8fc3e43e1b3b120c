"""Add workers to a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@arguments.overrides
@arguments.trust
@click.option("--workers", "-n", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@arguments.quiet
def join(run: RunDirectory, overrides: tuple[str, ...], trust: bool, workers: int, quiet: bool) -> None:
    """Train in RUN, which somebody else has started, with more workers: on this machine, or as `engine=NAME` says.

    They take its current parameters and start. Ctrl-C: they finish the current work and disconnect; the run continues.
    """
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.driver.servers.join import join as take_part

    ranks, ended = take_part(run, workers, overrides)
    if not quiet:
        say(f"rank {', '.join(map(str, ranks))} left {run.name}{', which has ended' if ended else ''}")
