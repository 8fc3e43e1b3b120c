"""Change a setting of a run while it trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@arguments.overrides
def change(run: RunDirectory, overrides: tuple[str, ...]) -> None:
    """Train RUN with another learning rate from its next step on: `optimizer.lr=0.01`.

    A checkpoint is written with it, so that the run has it also when it is resumed. Waits until it holds.
    """
    from volary.monitor.watching import wait_for
    from volary.monitor.wording import changed
    from volary.run.control.requests import ChangeRate
    from volary.session.changing import rate_while_running

    say(changed(wait_for(run, ChangeRate(rate_while_running(run.session, overrides)), ("changed",))))
