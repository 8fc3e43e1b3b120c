"""Train a session: start its workers and watch them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.session import Session


@click.command()
@arguments.session
@arguments.overrides
@arguments.trust
@arguments.quiet
@arguments.as_json
@arguments.log
@click.option("--ui", "with_page", is_flag=True, help="Serve the page of the run's folder meanwhile.")
@click.option("--dry-run", is_flag=True, help="Print what the engine would run, and start nothing.")
def train(
    session: Path,
    overrides: tuple[str, ...],
    trust: bool,
    quiet: bool,
    as_json: bool,
    log: tuple[str, ...],
    with_page: bool,
    dry_run: bool,
) -> int:
    """Train the session file SESSION, with settings changed as in `optimizer.lr=0.05`.

    Ctrl-C once finishes the step and writes a checkpoint; twice stops now.
    """
    refuse_foreign(session, trust=trust)

    from volary.session import Session

    found = Session.read(session, overrides)
    if dry_run:
        _show_commands(found)
        return 0

    from volary.cli.command.ending import conclude, console
    from volary.driver.start import start
    from volary.loggers.copying.beside import logged_beside

    with ExitStack() as beside:
        watcher = beside.enter_context(logged_beside(console(quiet, as_json), log))
        if with_page:
            from volary.cli.command.output import remark
            from volary.page.server.beside import served_beside

            watcher = beside.enter_context(served_beside(watcher, Path(found.run.folder), remark))
        return conclude(start(found, watcher), as_json)


def _show_commands(session: Session) -> None:
    """The command lines on stdout, what each of them is for beside them."""
    from volary.cli.command.output import remark, say
    from volary.driver.dry_run import planned

    for what, command in planned(session):
        remark(f"# {what}")
        say(command)
