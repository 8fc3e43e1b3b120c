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

    event = wait_for(run, WriteCheckpoint(), ("checkpoint", "checkpoint_failed"))
    if event.kind == "checkpoint_failed":
        raise NotSaved(trouble(event))
    say(f"checkpoint of step {event.step if event.step is not None else event.data.get('step')}")
