"""Open one port through which workers elsewhere reach a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import remark, say
from volary.errors import BadInput
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory
    from volary.run.launch.way import Way


@click.command()
@arguments.run
@arguments.trust
@click.option("--listen", metavar="HOST:PORT", help="An address of this machine, and the port to open there.")
@click.option("--public", metavar="HOST:PORT", help="Where others reach that, if it is elsewhere: a router's, say.")
@click.option("--relay", metavar="TOKEN", help="A relay between, where others cannot connect to this machine.")
def gate(run: RunDirectory, trust: bool, listen: str | None, public: str | None, relay: str | None) -> None:
    """Let workers elsewhere reach RUN by one address and port. Run it beside the run, where that was started.

    Lines of `volary invite` lead through it from then on. Ends with the run, or by Ctrl-C: then those who came through
    it are lost. TOKEN is what `volary relay` has printed on a machine that both sides reach.
    """
    refuse_foreign(run.path, run.session, trust=trust)

    from volary.driver.servers.gate import LOOPBACK, keep_gate
    from volary.run.launch.way import host_and_port, relay_of

    if (listen is None) == (relay is None):
        raise BadInput("accepted: --listen HOST:PORT, or --relay TOKEN where nobody can connect to this machine")
    if relay is not None and public is not None:
        raise BadInput("--public is where others reach --listen; accepted: without it, as --relay names the place")
    here = (LOOPBACK, 0) if listen is None else host_and_port("--listen", listen)
    there = here if public is None else host_and_port("--public", public)

    def opened(way: Way) -> None:
        say(f"{run.name} is reached by {way.words}")
        remark(f"volary invite {run.argument} prints the line for a worker")

    keep_gate(run, here, there, relay_of(relay) if relay is not None else None, opened)
