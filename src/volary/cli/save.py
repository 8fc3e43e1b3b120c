"""Have a run write a checkpoint now."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say
from volary.errors import NotSaved

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
def save(run: RunDirectory) -> None:
    """Let RUN write a checkpoint after the step that it is doing, and go on. Waits for that."""
    from volary.monitor.watching import wait_for
    from volary.monitor.wording import trouble
    from volary.run.control.requests import WriteCheckpoint

    told = wait_for(run, WriteCheckpoint(), ("checkpoint", "checkpoint_failed"))
    if told.kind == "checkpoint_failed":
        raise NotSaved(trouble(told))
    say(f"checkpoint of step {told.step if told.step is not None else told.data.get('step')}")
