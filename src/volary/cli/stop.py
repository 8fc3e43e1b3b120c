"""End a run in order: it saves, and says how to resume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say, say_pairs

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@click.option("--now", is_flag=True, help="Do not wait for the step: what was done since the last checkpoint is lost.")
def stop(run: RunDirectory, now: bool) -> int:
    """Let RUN finish its step, write a checkpoint and end, as Ctrl-C does where it was started. Waits for that."""
    from volary.driver.queued import wait_until_out, withdraw
    from volary.jobs.queue import LocalQueue
    from volary.monitor.ended.closing import closing
    from volary.monitor.watching import ending, exit_code, wait_until_stopped

    if withdraw(run):
        left = ending(run)
        if left.state == "new":
            say(f"{run.name} had not begun: its job is cancelled")
        else:
            say(f"{run.name} was not running: it waited to be resumed, and its job is cancelled")
            say_pairs(closing(left))
        return 0
    LocalQueue().stop(run, "now" if now else "after this step")
    wait_until_stopped(run)
    wait_until_out(run)
    ended = ending(run)
    say_pairs(closing(ended))
    if ended.state in ("finished", "stopped"):
        return 0
    if ended.message:
        remark(ended.message)
    return exit_code(ended)
