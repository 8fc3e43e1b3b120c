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
@click.option("--drive", is_flag=True, help="Drive it on, as its driver is lost.")
@click.option("--standby", is_flag=True, help="Drive it on once its driver is lost; wait until then.")
def attach(
    run: RunDirectory, trust: bool, quiet: bool, as_json: bool, log: tuple[str, ...], drive: bool, standby: bool
) -> int:
    """Follow RUN again, in the queue of its cluster or wherever it trains, as the terminal does that began it.

    Ctrl-C once lets it finish the step and write a checkpoint; twice stops it now. Closing the terminal does neither.
    """
    refuse_foreign(run.path, run.session, trust=trust)
    if standby:
        return _stand_by(run, quiet=quiet, as_json=as_json, log=log)

    from volary.cli.command.ending import conclude, console
    from volary.driver.queued import follow
    from volary.driver.replacing.take_over import take_over
    from volary.loggers.copying.beside import logged_beside

    with logged_beside(console(quiet, as_json), log) as watcher:
        return conclude((take_over if drive else follow)(run, watcher), as_json)


def _stand_by(run: RunDirectory, *, quiet: bool, as_json: bool, log: tuple[str, ...]) -> int:
    from volary.cli.command.ending import conclude, console
    from volary.cli.command.output import remark
    from volary.driver.replacing.take_over import stand_by
    from volary.loggers.copying.beside import logged_beside

    with logged_beside(console(quiet, as_json), log) as watcher:
        ending = stand_by(run, watcher, lambda: remark(f"the driver of {run.name} is lost: this one takes its place"))
        return 0 if ending is None else conclude(ending, as_json)
