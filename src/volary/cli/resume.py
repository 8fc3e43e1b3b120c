"""Resume a run from its newest whole checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli import _arguments
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@_arguments.run
@_arguments.trust
@click.option("--anew", is_flag=True, help="Where no checkpoint is whole: begin at step 0, and keep them aside.")
@_arguments.quiet
@_arguments.as_json
def resume(run: RunDirectory, trust: bool, anew: bool, quiet: bool, as_json: bool) -> int:
    """Resume RUN (a name in `runs/`, or a path) with the settings that it has."""
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.cli._ending import conclude, console
    from volary.driver.start import resume as go_on

    return conclude(go_on(run, console(quiet, as_json), anew=anew), as_json)
