"""Remove runs, after asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@click.argument("runs", type=arguments.RunName(), nargs=-1, required=True, metavar="RUN...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def rm(runs: tuple[RunDirectory, ...], yes: bool) -> None:
    """Remove runs with their checkpoints, logs and everything else. One that is running is refused."""
    from volary.monitor.wording import place, size
    from volary.run.removing import bytes_of, refuse_live, remove

    for run in runs:
        refuse_live(run)
    if not yes:
        for run in runs:
            say(f"{place(run.path)}  {size(bytes_of(run))}")
        click.confirm(f"remove {'this run' if len(runs) == 1 else f'these {len(runs)} runs'}?", abort=True)
    for run in runs:
        remove(run)
        say(f"removed {place(run.path)}")
