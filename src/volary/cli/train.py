"""Train a session: start its workers and watch them."""

from __future__ import annotations

from pathlib import Path

import click

from volary.cli import _arguments
from volary.run.owner import refuse_foreign


@click.command()
@_arguments.session
@_arguments.overrides
@_arguments.trust
@_arguments.quiet
@_arguments.as_json
def train(session: Path, overrides: tuple[str, ...], trust: bool, quiet: bool, as_json: bool) -> int:
    """Train the session file SESSION, with settings changed as in `optimizer.lr=0.05`.

    Ctrl-C once finishes the step and writes a checkpoint; twice stops now.
    """
    refuse_foreign(session, trust=trust)

    from volary.session import Session

    found = Session.read(session, overrides)

    from volary.cli._ending import conclude, console
    from volary.driver.start import start

    return conclude(start(found, console(quiet, as_json)), as_json)
