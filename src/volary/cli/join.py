"""Add workers to a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from volary.cli.command import arguments
from volary.cli.command.output import say
from volary.errors import BadInput
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory
    from volary.run.launch.invitation import Invitation


class _Joinable(arguments.RunName):
    """A run, or an invitation to one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read an invitation, which no name of a run looks like. Raises BadInput, RunError."""
        from volary.run.launch.invitation import PREFIX, Invitation

        if isinstance(value, str) and value.startswith(PREFIX):
            return Invitation.read(value)
        return super().convert(value, param, ctx)


@click.command()
@click.argument("run", type=_Joinable(), metavar="RUN|INVITATION")
@arguments.overrides
@arguments.trust
@click.option("--workers", "-n", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@arguments.quiet
def join(run: RunDirectory | Invitation, overrides: tuple[str, ...], trust: bool, workers: int, quiet: bool) -> None:
    """Train in RUN, which somebody else has started, with more workers: on this machine, or as `engine=NAME` says.

    They take its current parameters and start. Ctrl-C: they finish the current work and disconnect; the run continues.
    An INVITATION, which `volary invite` prints on a machine that sees the run, is enough on one that does not.
    """
    from volary.run.launch.invitation import Invitation

    if isinstance(run, Invitation):
        _accept(run, overrides, workers, quiet=quiet)
        return
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.driver.servers.join import join as take_part

    ranks, ended = take_part(run, workers, overrides)
    if not quiet:
        say(f"rank {', '.join(map(str, ranks))} left {run.name}{', which has ended' if ended else ''}")


def _accept(invitation: Invitation, overrides: tuple[str, ...], workers: int, *, quiet: bool) -> None:
    if overrides:
        raise BadInput(
            f"{overrides[0]}: workers that join by an invitation are started on this machine; accepted: none"
        )
    from volary.driver.servers.accept import accept

    ranks = accept(invitation, workers)
    if not quiet:
        say(f"rank {', '.join(map(str, ranks))} left the run at {invitation.host}:{invitation.port}")
