"""Invite workers of a machine that sees nothing of a running job."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say
from volary.errors import BadInput, SettingError

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory


@click.command()
@arguments.run
@click.option("--workers", "-n", type=click.IntRange(1), default=1, show_default=True, help="How many may join by it.")
@click.option("--for", "valid", metavar="TIME", default="1h", show_default=True, help="How long, as 20min or 2h.")
def invite(run: RunDirectory, workers: int, valid: str) -> None:
    """Print the command with which a machine elsewhere joins RUN: it needs Volary, and to reach this run's address.

    Whoever has it may be a worker of the run until then: send it as you would send a password.
    """
    from volary.comm.control.sealing import stays_here
    from volary.driver.servers.invite import invite as make
    from volary.session.values.duration import seconds_of

    try:
        valid_s = seconds_of(valid)
    except SettingError as error:
        raise BadInput(f"--for {error}") from None
    invitation, terms = make(run, workers, valid_s)
    say(f"volary join {invitation.line()}" + (f" --workers {workers}" if workers > 1 else ""))
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(terms.until))
    where = invitation.way.words if invitation.way else f"{invitation.host}:{invitation.port}"
    remark(f"for {workers} worker{'s' * (workers > 1)} until {until}, who reach {where}")
    if stays_here(invitation.host) and invitation.way is None:
        remark(
            "that is this machine alone; strategy.interface=NAME lets a run meet where others reach it, and volary "
            "gate opens one port to it"
        )
