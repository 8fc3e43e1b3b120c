"""Follow a run that another terminal, or nobody, looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@arguments.quiet
def watch(run: RunDirectory, quiet: bool) -> int:
    """Show RUN to its end, as `volary train` does where it was started. Ctrl-C ends the looking, not the run."""
    from volary.monitor.terminal.console import Console
    from volary.monitor.watching import exit_code, follow

    try:
        ended = follow(run, Console(quiet))
    except KeyboardInterrupt:
        remark(f"{run.name} continues; to end it: volary stop {run.argument}")
        return 0
    if ended.message and ended.state not in ("finished", "stopped"):
        remark(ended.message)
    return exit_code(ended)
