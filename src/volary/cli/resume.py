"""Resume a run from its newest checkpoint, with other settings too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@arguments.overrides
@arguments.trust
@click.option("--anew", is_flag=True, help="Where no checkpoint is whole: begin at step 0, and keep them aside.")
@arguments.quiet
@arguments.as_json
@arguments.log
def resume(
    run: RunDirectory,
    overrides: tuple[str, ...],
    trust: bool,
    anew: bool,
    quiet: bool,
    as_json: bool,
    log: tuple[str, ...],
) -> int:
    """Resume RUN (a name in `runs/`, or a path), with settings changed as in `optimizer.lr=0.05`.

    A finished run is resumed if it becomes longer: `train.epochs=20`.
    """
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.cli.command.ending import conclude, console
    from volary.driver.resume import resume as resume_run
    from volary.loggers.copying.beside import logged_beside

    with logged_beside(console(quiet, as_json), log) as watcher:
        return conclude(resume_run(run, watcher, overrides, anew=anew), as_json)
