"""Let a worker leave a running job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import say
from volary.errors import RunError

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@click.argument("rank", type=click.IntRange(0, 2**31 - 1))
@click.option("--now", is_flag=True, help="Expel it, whatever it does; the others go on as without a lost worker.")
def leave(run: RunDirectory, rank: int, now: bool) -> None:
    """Let the worker RANK of RUN leave after the step that it is doing; the others go on. Waits for that."""
    from volary.monitor.watching import ask_to_leave
    from volary.run.control.requests import LeaveRun

    event = ask_to_leave(run, LeaveRun(rank, now), ("left", "lost"))
    if now and event.kind == "lost":
        say(f"rank {rank} was expelled from {run.name} at step {event.step}")
        return
    if event.kind != "left":
        raise RunError(f"rank {rank} {event.data.get('reason', 'is lost')}")
    say(f"rank {rank} left {run.name} after step {event.step}")
